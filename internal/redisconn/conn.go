package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
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
	// minDialTimeout is the least timeout of an attempt to connect. It may exceed
	// that of a command: the caller does not wait so long, but the next one can
	// use the connection.
	minDialTimeout = 500 * time.Millisecond
	// topologyEvery is the age at which the client reloads a cluster's map that
	// no reply has shown to be wrong.
	topologyEvery = 5 * time.Second
)

// unixScheme begins the address of a unix socket.
const unixScheme = "unix:"

// Options of a Conn.
type Options struct {
	Mode Mode
	// Addresses are host:port of the server, the Sentinels, or some nodes of the
	// cluster. A single server may have a socket instead, unix:/path.
	Addresses []string
	// Database is 0 on a cluster.
	Database int
	Username string
	// Password is called for each new connection; nil means none.
	Password       func() (string, error)
	SentinelMaster string
	// SentinelUsername and SentinelPassword are for the Sentinels themselves.
	SentinelUsername, SentinelPassword string
	// TLS returns the configuration of a connection to addr, host:port or a
	// socket's path; nil means no TLS.
	TLS func(addr string) (*tls.Config, error)
	// isPlain is set while a server answers without TLS where TLS was asked. New makes it.
	isPlain *atomic.Bool
	// Prefix begins every key; it holds no brace.
	Prefix string
	// Timeout bounds each command; it is positive.
	Timeout time.Duration
	// Script is loaded into each server as soon as there is a connection to it;
	// empty means none.
	Script string
	// Log gets a line, once, when a node of a cluster lacks the hostname that it
	// should announce; nil means no log.
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

// Conn is a client of the servers at the options' addresses, and on a cluster of the
// nodes that it announces. It never resends a command by itself, because it does not
// always know whether the command ran.
type Conn struct {
	redis.UniversalClient
	options   Options
	announced *endpoints // of a cluster
}

// New returns a Conn, which connects when it is used. New fails only on invalid
// options.
func New(o Options) (*Conn, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.isPlain = new(atomic.Bool)
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
		Dialer:                     dialer(dialTimeout, o.TLS, o.isPlain),
		MaxRetries:                 -1,
		MinRetryBackoff:            -1, // a redirection may be followed at once
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

// Prefix returns the beginning of every key.
func (c *Conn) Prefix() string { return c.options.Prefix }

// Timeout returns the bound of each command.
func (c *Conn) Timeout() time.Duration { return c.options.Timeout }

// Cluster returns the client of a cluster, or nil for another mode.
func (c *Conn) Cluster() *redis.ClusterClient {
	cluster, _ := c.UniversalClient.(*redis.ClusterClient)
	return cluster
}

// ReloadAfter looks for a cluster's new masters after an error that is not a server's
// answer, or the answer that its cluster is down, and reports whether it does. The client
// itself looks only when a server redirects it.
func (c *Conn) ReloadAfter(ctx context.Context, err error) bool {
	var answer redis.Error
	cluster := c.Cluster()
	if cluster == nil || errors.As(err, &answer) && !redis.IsClusterDownError(err) {
		return false
	}
	cluster.ReloadState(ctx)
	return true
}

// dialFunc connects to addr.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer returns a function that connects, with TLS unless tlsFor is nil. It calls
// tlsFor each time, so that certificates can change while the daemon runs.
func dialer(timeout time.Duration, tlsFor func(addr string) (*tls.Config, error), isPlain *atomic.Bool) dialFunc {
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
			var record tls.RecordHeaderError
			if (errors.Is(err, context.DeadlineExceeded) || errors.As(err, &record)) && answersPlainly(&d, network, addr) {
				isPlain.Store(true)
				err = errPlain
			}
			return nil, fmt.Errorf("TLS with %s: %w", addr, err)
		}
		isPlain.Store(false)
		return secure, nil
	}
}

// errPlain is the error of a connection with TLS to a server without.
var errPlain = errors.New("it answers without TLS")

// answersPlainly reports whether a server answers a PING without TLS. Redis takes the first
// bytes of TLS for a command whose end it waits for, so the handshake says nothing.
func answersPlainly(d *net.Dialer, network, addr string) bool {
	conn, err := d.Dial(network, addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(d.Timeout))
	first := make([]byte, 1)
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	_, err = conn.Read(first)
	return err == nil && (first[0] == '+' || first[0] == '-')
}

// unconnected stands for a connection that could not be made: its use fails with
// the error of the dialler. If the dialler itself failed often, the client's pool would
// not dial for up to a second, and would not notice that the server is back.
type unconnected struct{ err error }

// The client unwraps the error once.
func (u unconnected) Read([]byte) (int, error)  { return 0, fmt.Errorf("%w", u.err) }
func (u unconnected) Write([]byte) (int, error) { return 0, fmt.Errorf("%w", u.err) }

func (unconnected) Close() error                     { return nil }
func (unconnected) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (unconnected) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (unconnected) SetDeadline(time.Time) error      { return nil }
func (unconnected) SetReadDeadline(time.Time) error  { return nil }
func (unconnected) SetWriteDeadline(time.Time) error { return nil }

// load puts a script into the cache of a server. It is not an error if the server
// refuses, since each command will meet the same refusal. If the server does not answer
// in time, the connection must be closed: its reply would be taken for the reply to the
// next command.
func load(ctx context.Context, conn *redis.Conn, script string) error {
	// Without its password a server hangs up on a long command, and gives the reason only
	// in reply to a short one.
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

// Once is a command that the client resends only after a redirection, by which a server
// says that it did not run it.
type Once struct{ redis.Cmder }

// NoRetry implements the client's interface for such commands.
func (Once) NoRetry() bool { return true }

// LogClient sends the Redis client's own log to log, at the level debug, for the
// whole process; by default the client writes to standard error. It has a line for each
// connection that fails, which the errors of commands report too.
func LogClient(log *slog.Logger) { redis.SetLogger(clientLog{log}) }

type clientLog struct{ log *slog.Logger }

// Printf implements the client's logger.
func (c clientLog) Printf(ctx context.Context, format string, v ...any) {
	if c.log.Enabled(ctx, slog.LevelDebug) {
		c.log.DebugContext(ctx, "redis client: "+fmt.Sprintf(format, v...))
	}
}
