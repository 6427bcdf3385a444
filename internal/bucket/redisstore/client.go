package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket/redisstore/script"
)

// Mode is how Redis is laid out.
type Mode string

// The modes: one server, one master found through Sentinel, or a cluster.
const (
	Single   Mode = "single"
	Sentinel Mode = "sentinel"
	Cluster  Mode = "cluster"
)

const (
	// minDialTimeout bounds one attempt to connect where the timeout of a
	// command does not allow for more. A caller waits for it no longer than
	// for anything else, but the next one can use the connection.
	minDialTimeout = 500 * time.Millisecond
	// poolPerNode bounds the connections to one server.
	poolPerNode = 64
	// topologyEvery is how old the cluster's map may grow when nothing says
	// that it is wrong.
	topologyEvery = 5 * time.Second
)

// unixScheme begins the address of a unix socket.
const unixScheme = "unix:"

// client returns a client for the options' servers, on a cluster for those that
// it announces. It never sends a command again by itself: whether one ran is
// not always known.
func client(o Options, announced *endpoints) (redis.UniversalClient, error) {
	if len(o.Addresses) == 0 {
		return nil, fmt.Errorf("redis: no address")
	}
	credentials := func(context.Context) (string, string, error) {
		if o.Password == nil {
			return o.Username, "", nil
		}
		password, err := o.Password()
		return o.Username, password, err
	}
	dialTimeout := max(minDialTimeout, o.Timeout)
	all := &redis.UniversalOptions{
		Addrs:                      o.Addresses,
		DB:                         o.Database,
		MasterName:                 o.SentinelMaster,
		SentinelUsername:           o.SentinelUsername,
		SentinelPassword:           o.SentinelPassword,
		Protocol:                   2,
		CredentialsProviderContext: credentials,
		Dialer:                     dialer(dialTimeout, o.TLS),
		OnConnect:                  loadScript,
		MaxRetries:                 -1,
		MinRetryBackoff:            -1, // nothing is lost by following a redirection at once
		MaxRetryBackoff:            -1,
		DialTimeout:                dialTimeout,
		DialerRetries:              1,
		ReadTimeout:                o.Timeout,
		WriteTimeout:               o.Timeout,
		ContextTimeoutEnabled:      true,
		PoolSize:                   poolPerNode,
		PoolTimeout:                o.Timeout,
		DisableIdentity:            true,
	}
	switch o.Mode {
	case Single:
		single := all.Simple()
		if path, ok := strings.CutPrefix(single.Addr, unixScheme); ok {
			single.Network, single.Addr = "unix", path
		}
		return redis.NewClient(single), nil
	case Sentinel:
		return redis.NewFailoverClient(all.Failover()), nil
	case Cluster:
		cluster := all.Cluster()
		cluster.Dialer = announced.dialer(cluster.Dialer)
		cluster.NewClient = announced.newClient
		cluster.DisableRoutingPolicies = true
		cluster.ClusterStateReloadInterval = topologyEvery
		return redis.NewClusterClient(cluster), nil
	}
	return nil, fmt.Errorf("redis: mode %q is neither single, sentinel nor cluster", o.Mode)
}

// dialFunc connects to addr.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer connects, with TLS where tlsFor is set. It asks for the configuration
// each time, so that certificates can change under a running daemon.
func dialer(timeout time.Duration, tlsFor func(addr string) (*tls.Config, error)) dialFunc {
	d := net.Dialer{Timeout: timeout}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return unconnected{err}, nil
		}
		if tlsFor == nil {
			return conn, nil
		}
		config, err := tlsFor(addr)
		if err != nil {
			conn.Close()
			return nil, err
		}
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, fmt.Errorf("TLS with %s: %w", addr, err)
		}
		return secure, nil
	}
}

// unconnected is the connection that there is not: its use fails as the dialling
// did. A dialler that fails often makes the client's pool refuse to dial for up
// to a second at a time, and a server that is back would not be seen before.
type unconnected struct{ err error }

// The client takes one layer off the error.
func (u unconnected) Read([]byte) (int, error)  { return 0, fmt.Errorf("%w", u.err) }
func (u unconnected) Write([]byte) (int, error) { return 0, fmt.Errorf("%w", u.err) }

func (unconnected) Close() error                     { return nil }
func (unconnected) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (unconnected) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (unconnected) SetDeadline(time.Time) error      { return nil }
func (unconnected) SetReadDeadline(time.Time) error  { return nil }
func (unconnected) SetWriteDeadline(time.Time) error { return nil }

// loadScript puts the script into the cache of a server as soon as there is a
// connection to it. Where the server refuses, each call finds out for itself.
// Where it does not answer in time, the connection must go: its answer would be
// taken for that to the next command.
func loadScript(ctx context.Context, conn *redis.Conn) error {
	// A server that was not given its password hangs up on who sends so much,
	// and says what is wrong only to who asks for something short.
	err := conn.Time(ctx).Err()
	if err == nil || redis.HasErrorPrefix(err, "NOPERM") {
		err = conn.ScriptLoad(ctx, script.Source).Err()
	}
	var refusal redis.Error
	if errors.As(err, &refusal) {
		return nil
	}
	return err
}

// once is a command that is never sent a second time, but for a redirection,
// with which a server says that it did not run it.
type once struct{ redis.Cmder }

// NoRetry tells the client so.
func (once) NoRetry() bool { return true }
