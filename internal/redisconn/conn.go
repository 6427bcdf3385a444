package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Mode is how Redis is laid out.
type Mode string

// The modes: one server, one master found through Sentinel, or a cluster.
const (
	Single   Mode = "single"
	Sentinel Mode = "sentinel"
	Cluster  Mode = "cluster"
)

// PoolPerNode bounds the connections to one server.
const PoolPerNode = 64

const (
	// minDialTimeout bounds one attempt to connect where the timeout of a
	// command does not allow for more. A caller waits for it no longer than
	// for anything else, but the next one can use the connection.
	minDialTimeout = 500 * time.Millisecond
	// topologyEvery is how old the cluster's map may grow when nothing says
	// that it is wrong.
	topologyEvery = 5 * time.Second
)

// unixScheme begins the address of a unix socket.
const unixScheme = "unix:"

// Options of a Conn.
type Options struct {
	Mode Mode
	// Addresses are host:port of the server, the Sentinels, or some nodes of
	// the cluster. That of a single server may be the socket unix:/path.
	Addresses []string
	// Database is 0 on a cluster.
	Database int
	Username string
	// Password is asked at each new connection; nil means none.
	Password       func() (string, error)
	SentinelMaster string
	// SentinelUsername and SentinelPassword are for the Sentinels themselves.
	SentinelUsername, SentinelPassword string
	// TLS gives the configuration of a connection to addr, host:port or a
	// socket's path; nil means that there is none.
	TLS func(addr string) (*tls.Config, error)
	// Prefix begins every key; it holds no brace.
	Prefix string
	// Timeout bounds each command.
	Timeout time.Duration
	// Script is loaded into each server as soon as there is a connection to it;
	// empty means none.
	Script string
	// Log is told once when a cluster does not announce what it should; nil
	// means nobody.
	Log *slog.Logger
}

func (o *Options) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("redis: "+format, args...)) }
	if len(o.Addresses) == 0 {
		bad("no address")
	}
	for _, address := range o.Addresses {
		if path, ok := strings.CutPrefix(address, unixScheme); ok && (o.Mode != Single || !strings.HasPrefix(path, "/")) {
			bad("the address %q, where a socket's absolute path is allowed for a single server", address)
		}
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		bad("the prefix %q holds a brace, which would break the hash tags", o.Prefix)
	}
	if o.Timeout <= 0 {
		bad("a timeout of %s, where a positive one is needed", o.Timeout)
	}
	return errors.Join(errs...)
}

// Conn is a client for the options' servers, on a cluster for those that it
// announces. It never sends a command again by itself: whether one ran is not
// always known.
type Conn struct {
	redis.UniversalClient
	options   Options
	announced *endpoints // of a cluster
}

// New returns a connection for the options' servers. It does not connect yet;
// an error is one of the options.
func New(o Options) (*Conn, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Conn{options: o, announced: &endpoints{configured: o.Addresses, log: o.Log}}
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
		MaxRetries:                 -1,
		MinRetryBackoff:            -1, // nothing is lost by following a redirection at once
		MaxRetryBackoff:            -1,
		DialTimeout:                dialTimeout,
		DialerRetries:              1,
		ReadTimeout:                o.Timeout,
		WriteTimeout:               o.Timeout,
		ContextTimeoutEnabled:      true,
		PoolSize:                   PoolPerNode,
		PoolTimeout:                o.Timeout,
		DisableIdentity:            true,
	}
	if o.Script != "" {
		all.OnConnect = func(ctx context.Context, conn *redis.Conn) error { return load(ctx, conn, o.Script) }
	}
	switch o.Mode {
	case Single:
		single := all.Simple()
		if path, ok := strings.CutPrefix(single.Addr, unixScheme); ok {
			single.Network, single.Addr = "unix", path
		}
		c.UniversalClient = redis.NewClient(single)
	case Sentinel:
		c.UniversalClient = redis.NewFailoverClient(all.Failover())
	case Cluster:
		cluster := all.Cluster()
		cluster.Dialer = c.announced.dialer(cluster.Dialer)
		cluster.NewClient = c.announced.newClient
		cluster.DisableRoutingPolicies = true
		cluster.ClusterStateReloadInterval = topologyEvery
		c.UniversalClient = redis.NewClusterClient(cluster)
	default:
		return nil, fmt.Errorf("redis: mode %q is neither single, sentinel nor cluster", o.Mode)
	}
	return c, nil
}

// Prefix is what begins every key.
func (c *Conn) Prefix() string { return c.options.Prefix }

// Timeout bounds each command.
func (c *Conn) Timeout() time.Duration { return c.options.Timeout }

// Cluster returns the client of a cluster, or nil for another mode.
func (c *Conn) Cluster() *redis.ClusterClient {
	cluster, _ := c.UniversalClient.(*redis.ClusterClient)
	return cluster
}

// ReloadAfter looks for a cluster's new masters after an error that is not a
// server's answer, and reports whether it does. The client itself looks only
// when a server tells it to.
func (c *Conn) ReloadAfter(ctx context.Context, err error) bool {
	var answer redis.Error
	cluster := c.Cluster()
	if cluster == nil || errors.As(err, &answer) {
		return false
	}
	cluster.ReloadState(ctx)
	return true
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

// load puts a script into the cache of a server as soon as there is a
// connection to it. Where the server refuses, each call finds out for itself.
// Where it does not answer in time, the connection must go: its answer would be
// taken for that to the next command.
func load(ctx context.Context, conn *redis.Conn, script string) error {
	// A server that was not given its password hangs up on who sends so much,
	// and says what is wrong only to who asks for something short.
	err := conn.Time(ctx).Err()
	if err == nil || redis.HasErrorPrefix(err, "NOPERM") {
		err = conn.ScriptLoad(ctx, script).Err()
	}
	var refusal redis.Error
	if errors.As(err, &refusal) {
		return nil
	}
	return err
}

// Once is a command that is never sent a second time, but for a redirection,
// with which a server says that it did not run it.
type Once struct{ redis.Cmder }

// NoRetry tells the client so.
func (Once) NoRetry() bool { return true }

// LogClient sends the Redis client's own log to log, at the level debug, for the
// whole process; by default the client writes to standard error. It has a line
// for each connection that fails, which the errors of commands say too.
func LogClient(log *slog.Logger) { redis.SetLogger(clientLog{log}) }

type clientLog struct{ log *slog.Logger }

// Printf implements the client's logger.
func (c clientLog) Printf(ctx context.Context, format string, v ...any) {
	if c.log.Enabled(ctx, slog.LevelDebug) {
		c.log.DebugContext(ctx, "redis client: "+fmt.Sprintf(format, v...))
	}
}
