package settings

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/tlsfiles"
)

// loopback reports whether only this machine can reach a listener at address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// resolvePprof turns profiles off where other machines could fetch them: they hold
// the memory of the process, secrets included. It is an error to ask for them
// there.
func (l *settingsLoader) resolvePprof(s *Settings) {
	if !s.Admin.Pprof || loopback(s.Admin.Address) {
		return
	}
	s.Admin.Pprof = false
	if s.Admin.Address == "" {
		return
	}
	if where := l.where["admin.pprof"]; where != "" {
		l.failf("%s: admin.pprof is true and admin.address %s is not loopback: profiles hold what is in memory, "+
			"secrets too, and are served on loopback only; set admin.pprof to false or admin.address to 127.0.0.1:6070",
			where, foundText(s.Admin.Address))
	}
}

// settingsConflict is a mistake that several settings make together. It is
// reported at the first of them that is set.
type settingsConflict struct {
	names []string
	wrong bool
	text  string
}

func (l *settingsLoader) checkTogether(s *Settings) {
	l.report(l.failf, tlsConflicts("grpc.tls", s.GRPC.TLS))
	l.report(l.failf, tlsConflicts("http.tls", s.HTTP.TLS))
	l.report(l.failf, tlsConflicts("admin.tls", s.Admin.TLS))
	l.report(l.failf, adminConflicts(&s.Admin))
	l.report(l.warnf, openTokens(&s.Admin))
	if strings.Contains(l.where["admin.address"], "DEBUG_HOST") {
		l.report(l.warnf, closedAdminAPI(&s.Admin))
	}
	tell := l.failf
	if l.likeEnvoy {
		tell = l.warnf // that service serves HTTP to anyone without a word
	}
	l.report(tell, serverConflicts(s))
	l.report(l.failf, headerConflicts(&s.Headers))
	l.report(l.failf, decisionConflicts(&s.Decisions))
	if s.Limits.Source == SourceXDS {
		l.report(l.failf, xdsConflicts(&s.Limits.XDS))
		l.report(l.warnf, idleXDSTLS(&s.Limits.XDS))
	}
	// With the memory store redis.* and failure.* do nothing, so they may be half
	// done there.
	if s.Store == StoreRedis {
		l.report(l.failf, redisConflicts(s))
		l.warnIdleTLS(s)
		l.warnIdleHealth(s)
	}
}

// report tells of those conflicts that are wrong.
func (l *settingsLoader) report(tell func(format string, args ...any), conflicts []settingsConflict) {
	for _, c := range conflicts {
		if c.wrong && l.good(c.names...) {
			tell("%s: %s", l.whereFirst(c.names...), c.text)
		}
	}
}

func pairConflicts(section, cert, key string) []settingsConflict {
	c, k := section+".cert", section+".key"
	return []settingsConflict{
		{[]string{c, k}, cert != "" && key == "", c + " is set and " + k + " is not; they come together"},
		{[]string{k, c}, cert == "" && key != "", k + " is set and " + c + " is not; they come together"},
	}
}

func tlsConflicts(section string, t tlsfiles.Server) []settingsConflict {
	ca, names := section+".client_ca", section+".client_names"
	return append(pairConflicts(section, t.Cert, t.Key),
		settingsConflict{
			[]string{ca, section + ".cert", section + ".key"},
			t.ClientCA != "" && t.Cert == "" && t.Key == "",
			ca + " is set and " + section + ".cert and " + section + ".key are not; without TLS there are no client certificates",
		},
		settingsConflict{
			[]string{names, ca},
			len(t.ClientNames) > 0 && t.ClientCA == "",
			names + " is set and " + ca + " is not; without it clients are not asked for certificates",
		},
	)
}

func serverConflicts(s *Settings) []settingsConflict {
	return []settingsConflict{{
		[]string{"grpc.tls.client_ca", "http.tls.client_ca", "http.address"},
		s.GRPC.TLS.ClientCA != "" && s.HTTP.TLS.ClientCA == "" && s.HTTP.Address != "",
		"grpc.tls.client_ca asks gRPC's clients for certificates, and HTTP on " + foundText(s.HTTP.Address) +
			" would take the same requests from anyone; set http.tls.cert, http.tls.key and http.tls.client_ca too," +
			" or http.address to empty",
	}, {
		[]string{"grpc.tls.client_names", "http.tls.client_names", "http.address"},
		len(s.GRPC.TLS.ClientNames) > 0 && s.HTTP.TLS.ClientCA != "" && len(s.HTTP.TLS.ClientNames) == 0 && s.HTTP.Address != "",
		"grpc.tls.client_names says who may ask over gRPC, and HTTP on " + foundText(s.HTTP.Address) +
			" would take the same requests from other clients; set http.tls.client_names too, or http.address to empty",
	}, {
		[]string{"auth.path", "http.address"},
		s.Auth.Path != "" && s.HTTP.Address == "",
		"auth.path is set and http.address is empty, which is where proxies ask; set it, or auth.path to empty",
	}}
}

func adminConflicts(a *Admin) []settingsConflict {
	return []settingsConflict{{
		[]string{"admin.tokens_file", "admin.address"},
		a.TokensFile != "" && a.Address == "",
		"admin.tokens_file is set and admin.address is empty, which is where the admin API is; set it, or admin.tokens_file to empty",
	}}
}

// openTokens finds tokens that travel in the clear.
func openTokens(a *Admin) []settingsConflict {
	return []settingsConflict{{
		[]string{"admin.tokens_file", "admin.address", "admin.tls.cert"},
		a.TokensFile != "" && a.Address != "" && !loopback(a.Address) && a.TLS.Cert == "",
		"admin.tokens_file is set and admin.address " + foundText(a.Address) +
			" is not loopback: tokens go over the network without TLS; set admin.tls.cert and admin.tls.key",
	}}
}

// closedAdminAPI finds a DEBUG_HOST that turns the admin API off. That service has none,
// so nobody who sets the variable thinks of it.
func closedAdminAPI(a *Admin) []settingsConflict {
	return []settingsConflict{{
		[]string{"admin.address"},
		a.Address != "" && !loopback(a.Address) && a.TokensFile == "" && a.TLS.ClientCA == "",
		"others reach admin.address " + foundText(a.Address) + " and nothing says who they are, so the admin API (explain, assign, top) is off; " +
			"to have both, give --admin-tokens-file a file that ratelimitd token makes; or set DEBUG_HOST=127.0.0.1, and --metrics-address for metrics from elsewhere",
	}}
}

func decisionConflicts(d *Decisions) []settingsConflict {
	return []settingsConflict{{
		[]string{"decisions.values", "decisions.hash_key_file"},
		d.Values == HashValues && d.HashKeyFile == "",
		"decisions.values is hash and decisions.hash_key_file is not set; without a key who guesses a value can tell it by its hash",
	}, {
		[]string{"decisions.hash_key_file", "decisions.values"},
		d.Values == KeepValues && d.HashKeyFile != "",
		"decisions.hash_key_file is set and decisions.values is keep; set decisions.values to hash, or the file to empty",
	}, {
		[]string{"decisions.max_size"},
		d.MaxSize > 0 && d.MaxSize < MinLogSize,
		fmt.Sprintf("decisions.max_size: found %d; allowed: 0, or %d and more", d.MaxSize, MinLogSize),
	}, {
		[]string{"decisions.bytes_per_second"},
		d.BytesPerSecond > 0 && d.BytesPerSecond < MinBytesPerSecond,
		fmt.Sprintf("decisions.bytes_per_second: found %d; allowed: 0, or %d and more", d.BytesPerSecond, MinBytesPerSecond),
	}}
}

func xdsConflicts(x *XDS) []settingsConflict {
	return append(pairConflicts("limits.xds.tls", x.TLS.Cert, x.TLS.Key), settingsConflict{
		[]string{"limits.xds.address", "limits.source"},
		x.Address == "",
		"limits.source is xds and limits.xds.address is not set; it is host:port of the server",
	})
}

// idleXDSTLS finds TLS that is prepared and not enabled.
func idleXDSTLS(x *XDS) []settingsConflict {
	var conflicts []settingsConflict
	for _, f := range [][2]string{
		{"limits.xds.tls.ca", x.TLS.CA}, {"limits.xds.tls.cert", x.TLS.Cert}, {"limits.xds.tls.server_name", x.TLS.ServerName},
	} {
		conflicts = append(conflicts, settingsConflict{
			[]string{f[0], "limits.xds.tls.enabled"},
			f[1] != "" && !x.TLS.Enabled,
			f[0] + " is set and limits.xds.tls.enabled is false: the xDS server is spoken to without TLS",
		})
	}
	return conflicts
}

// headerConflicts finds names that are used twice, or that mean something else in
// a response. HTTP does not tell capitals apart.
func headerConflicts(h *Headers) []settingsConflict {
	names := []string{"headers.limit", "headers.remaining", "headers.reset"}
	headers := []string{h.Limit, h.Remaining, h.Reset}
	var conflicts []settingsConflict
	for i, header := range headers {
		conflicts = append(conflicts, settingsConflict{
			[]string{names[i], "headers.style"},
			h.Style == HeadersRateLimit && strings.EqualFold(header, "retry-after"),
			names[i] + " is " + foundText(header) + ", which tells when to come back; name another header",
		}, settingsConflict{
			[]string{names[i], "headers.style"},
			h.Style == HeadersRateLimit && isOfHTTP(header),
			names[i] + " is " + foundText(header) + ", which HTTP has for itself; name another header",
		})
		for j, other := range headers[:i] {
			conflicts = append(conflicts, settingsConflict{
				[]string{names[i], names[j], "headers.style"},
				h.Style == HeadersRateLimit && strings.EqualFold(header, other),
				names[j] + " and " + names[i] + " are both " + foundText(header) + "; each needs a header of its own",
			})
		}
	}
	return conflicts
}

func redisConflicts(s *Settings) []settingsConflict {
	r := &s.Redis
	return append(pairConflicts("redis.tls", r.TLS.Cert, r.TLS.Key),
		settingsConflict{
			[]string{"redis.addresses", "redis.mode"},
			r.Mode == RedisSingle && len(r.Addresses) > 1,
			"redis.addresses are several and redis.mode is single, which has one; is it cluster (or sentinel)?",
		},
		settingsConflict{
			[]string{"redis.addresses", "redis.mode"},
			r.Mode != RedisSingle && onUnixSocket(r),
			"redis.addresses name a unix socket and redis.mode is " + string(r.Mode) + ", which leads to other machines; a socket is for mode single",
		},
		settingsConflict{
			[]string{"redis.addresses", "redis.tls.enabled", "redis.tls.server_name"},
			r.Mode == RedisSingle && onUnixSocket(r) && r.TLS.Enabled && r.TLS.ServerName == "" && !r.TLS.InsecureAnyServerName,
			"redis.addresses name a unix socket, which has no host name for redis.tls to hold against the certificate; set redis.tls.server_name",
		},
		settingsConflict{
			[]string{"redis.tls.insecure_any_server_name", "redis.tls.server_name"},
			r.TLS.InsecureAnyServerName && r.TLS.ServerName != "",
			"redis.tls.insecure_any_server_name is true and redis.tls.server_name is set; leave one out",
		},
		settingsConflict{
			[]string{"redis.mode", "redis.sentinel_master"},
			r.Mode == RedisSentinel && r.SentinelMaster == "",
			"redis.mode is sentinel and redis.sentinel_master is not set; it is the name that sentinel.conf gives the master",
		},
		settingsConflict{
			[]string{"redis.database", "redis.mode"},
			r.Mode == RedisCluster && r.Database != 0,
			"redis.database is not 0 and redis.mode is cluster, which has database 0 only",
		},
		settingsConflict{
			[]string{"redis.password", "redis.password_file"},
			r.Password.IsSet() && r.PasswordFile != "",
			"redis.password and redis.password_file are both set; leave one empty",
		},
	)
}

func onUnixSocket(r *Redis) bool {
	return slices.ContainsFunc(r.Addresses, func(address string) bool { return strings.HasPrefix(address, unixScheme) })
}

// warnIdleTLS warns if TLS is prepared and not enabled: the password goes over the
// wire in the clear.
func (l *settingsLoader) warnIdleTLS(s *Settings) {
	t := &s.Redis.TLS
	if t.Enabled || !l.good("redis.tls.enabled") {
		return
	}
	for _, f := range [][2]string{
		{"redis.tls.ca", t.CA}, {"redis.tls.cert", t.Cert}, {"redis.tls.key", t.Key}, {"redis.tls.server_name", t.ServerName},
	} {
		if f[1] != "" {
			l.warnf("%s: %s is set and redis.tls.enabled is false: Redis is spoken to without TLS", l.whereFirst(f[0]), f[0])
			return
		}
	}
}

// warnIdleHealth warns if failure.health should take a daemon out of its load
// balancer and does not: with this failure mode the daemon goes on answering.
func (l *settingsLoader) warnIdleHealth(s *Settings) {
	f := &s.Failure
	if f.Health != HealthNotServing || f.Mode == bucket.FailError || !l.good("failure.health", "failure.mode") {
		return
	}
	l.warnf("%s: failure.health is not_serving and failure.mode is %s: the daemon answers without Redis and stays serving; it counts with error only",
		l.whereFirst("failure.health"), f.Mode)
}

// isOfHTTP reports whether a header says how to read a response, or how its
// connection goes on.
func isOfHTTP(header string) bool {
	switch strings.ToLower(header) {
	case "connection", "content-encoding", "content-length", "content-type", "keep-alive", "proxy-connection",
		"te", "trailer", "transfer-encoding", "upgrade":
		return true
	}
	return false
}
