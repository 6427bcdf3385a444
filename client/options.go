package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Option is one of a Client's.
type Option func(*options)

type options struct {
	timeout     time.Duration
	failure     Failure
	logger      *slog.Logger
	credentials credentials.TransportCredentials
	dial        []grpc.DialOption
}

const defaultTimeout = 50 * time.Millisecond

func newOptions(list []Option) (options, error) {
	o := options{
		timeout:     defaultTimeout,
		failure:     FailError(),
		logger:      slog.New(slog.DiscardHandler),
		credentials: insecure.NewCredentials(),
	}
	for _, set := range list {
		set(&o)
	}
	switch {
	case o.timeout <= 0:
		return o, fmt.Errorf("client: timeout: found %v; allowed: more than 0", o.timeout)
	case o.failure.err != nil:
		return o, fmt.Errorf("client: %w", o.failure.Err())
	case o.logger == nil:
		return o, errors.New("client: logger is nil")
	case o.credentials == nil:
		return o, errors.New("client: credentials are nil")
	}
	return o, nil
}

// Timeout is how long a call waits for an answer; 50 ms unless set. Wait's
// sleeps do not count. The end of a call's context ends it before.
func Timeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// OnFailure says what decides when the daemon does not; FailError unless set.
func OnFailure(f Failure) Option {
	return func(o *options) { o.failure = f.or(FailError()) }
}

// Logger takes a line when the daemon stops and starts to answer, and when
// streams are refused. Nothing is logged unless it is set.
func Logger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// TLS connects by TLS; connections are in the clear unless it or Credentials is
// set.
func TLS(c *tls.Config) Option { return Credentials(credentials.NewTLS(c)) }

// Credentials connects by these.
func Credentials(c credentials.TransportCredentials) Option {
	return func(o *options) { o.credentials = c }
}

// DialOptions are gRPC's own, such as interceptors, a stats handler or
// keepalive. They come last and win over what the client sets.
func DialOptions(list ...grpc.DialOption) Option {
	return func(o *options) { o.dial = append(o.dial, list...) }
}
