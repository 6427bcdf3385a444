package redisconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// AnyNode stands for the address of a server outside a cluster, and of an unknown
// node of a cluster.
const AnyNode = ""

// ErrRefused says that Redis answers but will not serve this daemon, until somebody
// changes a setting, of the daemon or of the server.
var ErrRefused = errors.New("refused")

// Explain returns err. If err stays until somebody changes a setting, of the daemon
// or of the server, Explain adds ErrRefused and a sentence for the operator.
// On a cluster, address is that of the node.
func (c *Conn) Explain(address string, err error) error { return c.options.explain(address, err) }

// Unannounced returns the error of a node of the cluster that refuses to send the
// map of the slots, or else err. The client itself returns the error of the node
// that it asked first.
func (c *Conn) Unannounced(err error) error {
	return cmp.Or(c.announced.refusal(&c.options), err)
}

func (o *Options) explain(address string, err error) error {
	if err == nil {
		return nil
	}
	s := o.server(address, err)
	if means, why := s.meansTLS(err); means != "" {
		return &refusal{means, why}
	}
	// Callers often stop waiting before the handshake does.
	if errors.Is(err, errPlain) || errors.Is(err, context.DeadlineExceeded) && o.isPlain != nil && o.isPlain.Load() {
		return &refusal{s.name + " has no TLS at this port; see redis.tls.enabled", err}
	}
	var answer redis.Error // of one, where several sentinels have answered
	if errors.As(err, &answer) {
		if means := s.meansAnswer(answer); means != "" {
			return &refusal{means, answer}
		}
	}
	return err
}

// refusal is an error with its meaning for the settings.
type refusal struct {
	means string
	err   error
}

func (r *refusal) Error() string {
	if r.err == redis.Nil { // the answer of a sentinel, which says no more
		return "redis: " + r.means
	}
	return "redis: " + r.means + ": " + r.err.Error()
}

func (r *refusal) Unwrap() []error { return []error{ErrRefused, r.err} }

// server is the server, or the sentinels, that an error is from.
type server struct {
	*Options
	name       string
	isSentinel bool
}

func (o *Options) server(address string, err error) server {
	if o.Mode == Sentinel && strings.Contains(err.Error(), "all sentinels specified in configuration are unreachable") { // as the client says it
		return server{Options: o, name: "the sentinels " + strings.Join(o.Addresses, ", "), isSentinel: true}
	}
	return server{Options: o, name: o.nodeName(address)}
}

// NodeName names the server at an address, which may be AnyNode, for people.
func (c *Conn) NodeName(address string) string { return c.options.nodeName(address) }

func (o *Options) nodeName(address string) string {
	switch {
	case o.Mode == Single:
		return o.Addresses[0]
	case o.Mode == Sentinel:
		return fmt.Sprintf("the master %q", o.SentinelMaster)
	case address == AnyNode:
		return "a node of the cluster"
	}
	return address
}

// meansTLS returns which certificate is not accepted, and why, or "" for another
// error.
func (s server) meansTLS(err error) (means string, why error) {
	var verification *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError // of a check of the daemon's own
	var network *net.OpError
	switch {
	case errors.As(err, &verification):
		why = verification
	case errors.As(err, &unknown):
		why = unknown
	case errors.As(err, &network) && network.Op == "remote error" && strings.Contains(network.Err.Error(), "certificate"):
		return "the daemon's certificate is not accepted at " + s.name + "; see redis.tls.cert and redis.tls.key", network
	default:
		return "", nil
	}
	return "the certificate of " + s.name + " is not accepted; see redis.tls.ca and redis.tls.server_name", why
}

// meansAnswer returns what a server's error means for the settings, or "" if the error
// may go away by itself.
func (s server) meansAnswer(answer redis.Error) string {
	user, password := "redis.username", "redis.password or redis.password_file"
	if s.isSentinel {
		user, password = "redis.sentinel_username", "redis.sentinel_password"
	}
	begins := func(prefixes ...string) bool {
		text := strings.TrimPrefix(answer.Error(), "ERR ")
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
	}
	switch {
	// The first is of Redis 6 and later; the others are of older versions, and
	// of users without a password.
	case begins("WRONGPASS", "invalid password", "AUTH ", "Client sent AUTH", "wrong number of arguments for 'auth'"):
		return "the daemon's user or password is not accepted at " + s.name + "; see " + user + " and " + password
	case begins("NOAUTH"):
		return "a password is needed at " + s.name + "; set " + password
	case begins("NOPERM") && s.isSentinel:
		return "the daemon may not ask for the master at " + s.name + "; see " + user
	case begins("NOPERM"), IsScriptsRight(answer):
		return fmt.Sprintf("the daemon lacks rights at %s, on the keys %s{* or to commands; see %s, and docs/redis.md for the rights that suffice (ACL SETUSER)",
			s.name, s.Prefix, user)
	case begins("DB index is out of range", "invalid DB index", "SELECT is not allowed"):
		return "there is no such database at " + s.name + "; see redis.database"
	case begins("This instance has cluster support disabled"):
		return "there is no cluster at " + s.name + "; see redis.mode"
	case begins("CROSSSLOT", "MOVED ") && s.Mode != Cluster:
		return "there is a cluster at " + s.name + "; see redis.mode"
	case begins("unknown command", "Unknown Redis command"):
		return "a command that the daemon needs is not known at " + s.name + "; see redis.addresses and redis.mode"
	case s.isSentinel && errors.Is(answer, redis.Nil):
		return fmt.Sprintf("the master %q is not known at %s; see redis.sentinel_master", s.SentinelMaster, s.name)
	}
	return ""
}

// IsScriptsRight reports whether an error says that the user may not run one of a
// script's commands, in the words of Redis 7.0 or of later versions.
func IsScriptsRight(err error) bool {
	return redis.HasErrorPrefix(err, "The user executing the script") || redis.HasErrorPrefix(err, "ACL failure in script")
}
