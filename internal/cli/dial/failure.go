package dial

import (
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Failure returns an error that says why a call on conn failed and what to do about it.
func (t *Target) Failure(conn *grpc.ClientConn, err error) error {
	s := status.Convert(err)
	if s.Code() == codes.Unavailable && strings.Contains(s.Message(), "connection error") {
		advice := t.advice()
		if strings.Contains(s.Message(), "does not look like a TLS handshake") {
			advice = "the port speaks no TLS: leave out the --tls flags"
		}
		return CallError{fmt.Sprintf("%s cannot be reached: %s\n%s", conn.Target(), s.Message(), advice), err}
	}
	text := fmt.Sprintf("%s answers %s: %s", conn.Target(), s.Code(), s.Message())
	switch s.Code() {
	case codes.Unimplemented:
		if !strings.Contains(s.Message(), "unknown") && !strings.Contains(s.Message(), "HTTP") {
			break // the daemon itself says why
		}
		text += fmt.Sprintf("\nthis is not the %s of a daemon that knows this command: look at --%s, and at the daemon's version", t.port.name, t.port.flag)
	case codes.DeadlineExceeded:
		text = fmt.Sprintf("%s has not answered within --timeout: %s", conn.Target(), s.Message())
	case codes.Unauthenticated, codes.PermissionDenied:
		text = fmt.Sprintf("%s refuses: %s\n%s", conn.Target(), s.Message(), t.tokenAdvice(s.Code()))
	}
	return CallError{text, err}
}

// tokenAdvice says what to do after a refusal.
func (t *Target) tokenAdvice(code codes.Code) string {
	const where = "in the variable " + TokenVariable + ", or in a file with --token-file"
	token, err := t.token()
	switch {
	case err == nil && token == "" && t.cert == "":
		return "no token was given: put one " + where + ". The daemon knows those of its setting " + t.port.tokens + "; " + t.port.maker
	case code == codes.Unauthenticated:
		return "give a token that is in the daemon's " + t.port.tokens + ": " + where
	}
	return "give a token with the right to do this: " + where
}

// CallError is the error of a call, phrased for people.
type CallError struct {
	text string
	err  error // contains the status
}

func (e CallError) Error() string { return e.text }
func (e CallError) Unwrap() error { return e.err }

// Message is what the daemon said.
func (e CallError) Message() string { return status.Convert(e.err).Message() }

// advice says what to start or to set so that the daemon can be reached.
func (t *Target) advice() string {
	return fmt.Sprintf("start a daemon there (ratelimitd serve --limits-path FOLDER), or say where one listens: with --%s, or with the daemon's own environment (%s); a port with TLS needs --tls or --tls-ca",
		t.port.flag, t.port.setting)
}
