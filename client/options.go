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

// Option changes a default of a Client.
type Option func(*options)

type options struct {
	timeout     time.Duration
	failure     Failure
	noLeases    bool
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

// Timeout sets how long a call waits for an answer, more than 0; the default is
// 50 ms. The sleeps of Wait do not count. A call about a limit with a lease may first wait
// for the answers to three others, each as long. A call whose context ends returns sooner.
func Timeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// OnFailure sets how to decide when the daemon does not; the default is
// FailError.
func OnFailure(f Failure) Option {
	return func(o *options) { o.failure = f.or(FailError()) }
}

// WithoutLeases makes the client ask about each request, also where the limits have a lease.
func WithoutLeases() Option { return func(o *options) { o.noLeases = true } }

// Logger sets the log, which gets a line when the daemon stops answering, when it
// answers again, and when streams are refused. The default logs nothing.
func Logger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// TLS makes the client connect by TLS. Without TLS and Credentials, connections are not
// encrypted.
func TLS(c *tls.Config) Option { return Credentials(credentials.NewTLS(c)) }

// Credentials sets the credentials of connections.
func Credentials(c credentials.TransportCredentials) Option {
	return func(o *options) { o.credentials = c }
}

// DialOptions adds gRPC options, such as interceptors, a stats handler or keepalive. They
// override the client's own.
func DialOptions(list ...grpc.DialOption) Option {
	return func(o *options) { o.dial = append(o.dial, list...) }
}
