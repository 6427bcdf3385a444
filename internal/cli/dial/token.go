package dial

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strings"
)

// TokenVariable is the environment variable with the token for a daemon.
const TokenVariable = "RATELIMITD_TOKEN"

// bearer is a token sent with each call.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. A token may be sent
// in the clear over loopback and within a cluster's network.
func (bearer) RequireTransportSecurity() bool { return false }

// token returns the token to send with each call, or "". It is never an argument:
// everyone on the machine can read those.
func (t *Target) token() (bearer, error) {
	if t.tokenFile == "" {
		return bearer(strings.TrimSpace(os.Getenv(TokenVariable))), nil
	}
	text, err := os.ReadFile(t.tokenFile)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	text = bytes.TrimSpace(text)
	if len(text) == 0 || bytes.ContainsAny(text, "\r\n\x00") {
		return "", fmt.Errorf("--token-file: %s does not hold one line with a token", t.tokenFile)
	}
	return bearer(text), nil
}

// onThisMachine reports whether an address is certainly on this machine.
func onThisMachine(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}
