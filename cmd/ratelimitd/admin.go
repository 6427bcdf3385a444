package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// tokenVariable is the environment's variable with the token for a daemon.
const tokenVariable = "RATELIMITD_TOKEN"

// bearer is a token that goes with each call.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. A token may go
// in clear text over the loopback and within a cluster's network.
func (bearer) RequireTransportSecurity() bool { return false }

// token returns the token that goes with each call, or nothing. It is never an argument:
// everybody on the machine can read those.
func (t *target) token() (bearer, error) {
	if t.tokenFile == "" {
		return bearer(strings.TrimSpace(os.Getenv(tokenVariable))), nil
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

// admin calls the admin API of a daemon, with a time for each call.
type admin struct {
	adminv1.AdminServiceClient
	conn *grpc.ClientConn
	to   *target
}

// withAdmin calls do with a connection to the daemon's admin port.
func (t *target) withAdmin(do func(admin) error) error {
	conn, err := t.dial()
	if err != nil {
		return err
	}
	return errors.Join(do(admin{adminv1.NewAdminServiceClient(conn), conn, t}), conn.Close())
}

func (t *target) usesTLS() bool {
	return t.tls || t.ca != "" || t.cert != "" || t.key != "" || t.serverName != ""
}

// onThisMachine reports whether an address is surely one of this machine's.
func onThisMachine(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// call calls an RPC in the time that the user grants.
func call[Request, Response any](ctx context.Context, a admin, rpc func(context.Context, Request, ...grpc.CallOption) (Response, error), request Request) (Response, error) {
	ctx, cancel := context.WithTimeout(ctx, a.to.timeout+a.to.maxWait.AsDuration())
	defer cancel()
	response, err := rpc(ctx, request)
	if err != nil {
		return response, a.to.failure(a.conn, err)
	}
	return response, nil
}

// tellUnknownDomain says so if the daemon's limits files do not have a domain. What
// was assigned in it may still be there.
func tellUnknownDomain(cmd *cobra.Command, a admin, domain string) {
	if domain == "" {
		return
	}
	r, err := call(cmd.Context(), a, a.ListDomains, &adminv1.ListDomainsRequest{})
	if err != nil || slices.ContainsFunc(r.GetDomains(), func(d *adminv1.Domain) bool { return d.GetName() == domain }) {
		return
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "no limits have the domain %s\n", yamlfile.Quote(domain))
}
