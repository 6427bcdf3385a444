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

// resolvePprof turns profiles off where other machines could fetch them: they contain the
// memory of the process, including secrets. Asking for them there is an error.
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

// settingsConflict is a mistake in the combination of several settings. It is reported at
// the first of them that is set.
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
		tell = l.warnf // that service serves HTTP to anyone without comment
	}
	l.report(tell, serverConflicts(s))
	l.report(l.failf, headerConflicts(&s.Headers))
	l.report(l.failf, decisionConflicts(&s.Decisions))
	if s.Limits.Source == SourceXDS {
		l.report(l.failf, xdsConflicts(&s.Limits.XDS))
		l.report(l.warnf, idleXDSTLS(&s.Limits.XDS))
	}
	// With the memory store redis.* and failure.* have no effect, so they may be
	// incomplete there.
	if s.Store == StoreRedis {
		l.report(l.failf, redisConflicts(s))
		l.warnIdleTLS(s)
		l.warnIdleHealth(s)
	}
}

// report reports those conflicts that are wrong.
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
		{names: []string{c, k}, wrong: cert != "" && key == "", text: c + " is set and " + k + " is not; they come together"},
		{names: []string{k, c}, wrong: cert == "" && key != "", text: k + " is set and " + c + " is not; they come together"},
	}
}

func tlsConflicts(section string, t tlsfiles.Server) []settingsConflict {
	ca, names := section+".client_ca", section+".client_names"
	return append(pairConflicts(section, t.Cert, t.Key),
		settingsConflict{
			names: []string{ca, section + ".cert", section + ".key"},
			wrong: t.ClientCA != "" && t.Cert == "" && t.Key == "",
			text:  ca + " is set and " + section + ".cert and " + section + ".key are not; without TLS there are no client certificates",
		},
		settingsConflict{
			names: []string{names, ca},
			wrong: len(t.ClientNames) > 0 && t.ClientCA == "",
			text:  names + " is set and " + ca + " is not; without it clients are not asked for certificates",
		},
	)
}

func serverConflicts(s *Settings) []settingsConflict {
	return []settingsConflict{{
		names: []string{"grpc.tls.client_ca", "http.tls.client_ca", "http.address"},
		wrong: s.GRPC.TLS.ClientCA != "" && s.HTTP.TLS.ClientCA == "" && s.HTTP.Address != "",
		text: "grpc.tls.client_ca asks gRPC's clients for certificates, and HTTP on " + foundText(s.HTTP.Address) +
			" would take the same requests from anyone; set http.tls.cert, http.tls.key and http.tls.client_ca too," +
			" or http.address to empty",
	}, {
		names: []string{"grpc.tls.client_names", "http.tls.client_names", "http.address"},
		wrong: len(s.GRPC.TLS.ClientNames) > 0 && s.HTTP.TLS.ClientCA != "" && len(s.HTTP.TLS.ClientNames) == 0 && s.HTTP.Address != "",
		text: "grpc.tls.client_names says who may ask over gRPC, and HTTP on " + foundText(s.HTTP.Address) +
			" would take the same requests from other clients; set http.tls.client_names too, or http.address to empty",
	}, {
		names: []string{"auth.path", "http.address"},
		wrong: s.Auth.Path != "" && s.HTTP.Address == "",
		text:  "auth.path is set and http.address is empty, which is where proxies ask; set it, or auth.path to empty",
	}}
}

func adminConflicts(a *Admin) []settingsConflict {
	return []settingsConflict{{
		names: []string{"admin.tokens_file", "admin.address"},
		wrong: a.TokensFile != "" && a.Address == "",
		text:  "admin.tokens_file is set and admin.address is empty, which is where the admin API is; set it, or admin.tokens_file to empty",
	}}
}

// openTokens finds tokens sent in the clear.
func openTokens(a *Admin) []settingsConflict {
	return []settingsConflict{{
		names: []string{"admin.tokens_file", "admin.address", "admin.tls.cert"},
		wrong: a.TokensFile != "" && a.Address != "" && !loopback(a.Address) && a.TLS.Cert == "",
		text: "admin.tokens_file is set and admin.address " + foundText(a.Address) +
			" is not loopback: tokens go over the network without TLS; set admin.tls.cert and admin.tls.key",
	}}
}

// closedAdminAPI finds a DEBUG_HOST that turns the admin API off. That service has none,
// so nobody who sets the variable expects it.
func closedAdminAPI(a *Admin) []settingsConflict {
	return []settingsConflict{{
		names: []string{"admin.address"},
		wrong: a.Address != "" && !loopback(a.Address) && a.TokensFile == "" && a.TLS.ClientCA == "",
		text: "others reach admin.address " + foundText(a.Address) + " and nothing says who they are, so the admin API (explain, assign, top) is off; " +
			"to have both, give --admin-tokens-file a file that ratelimitd token makes; or set DEBUG_HOST=127.0.0.1, and --metrics-address for metrics from elsewhere",
	}}
}

func decisionConflicts(d *Decisions) []settingsConflict {
	return []settingsConflict{{
		names: []string{"decisions.values", "decisions.hash_key_file"},
		wrong: d.Values == HashValues && d.HashKeyFile == "",
		text:  "decisions.values is hash and decisions.hash_key_file is not set; without a key who guesses a value can tell it by its hash",
	}, {
		names: []string{"decisions.hash_key_file", "decisions.values"},
		wrong: d.Values == KeepValues && d.HashKeyFile != "",
		text:  "decisions.hash_key_file is set and decisions.values is keep; set decisions.values to hash, or the file to empty",
	}, {
		names: []string{"decisions.max_size"},
		wrong: d.MaxSize > 0 && d.MaxSize < MinLogSize,
		text:  fmt.Sprintf("decisions.max_size: found %d; allowed: 0, or %d and more", d.MaxSize, MinLogSize),
	}, {
		names: []string{"decisions.bytes_per_second"},
		wrong: d.BytesPerSecond > 0 && d.BytesPerSecond < MinBytesPerSecond,
		text:  fmt.Sprintf("decisions.bytes_per_second: found %d; allowed: 0, or %d and more", d.BytesPerSecond, MinBytesPerSecond),
	}}
}

func xdsConflicts(x *XDS) []settingsConflict {
	return append(pairConflicts("limits.xds.tls", x.TLS.Cert, x.TLS.Key), settingsConflict{
		names: []string{"limits.xds.address", "limits.source"},
		wrong: x.Address == "",
		text:  "limits.source is xds and limits.xds.address is not set; it is host:port of the server",
	})
}

// idleXDSTLS finds TLS that is prepared but not enabled.
func idleXDSTLS(x *XDS) []settingsConflict {
	var conflicts []settingsConflict
	for _, f := range [][2]string{
		{"limits.xds.tls.ca", x.TLS.CA}, {"limits.xds.tls.cert", x.TLS.Cert}, {"limits.xds.tls.server_name", x.TLS.ServerName},
	} {
		conflicts = append(conflicts, settingsConflict{
			names: []string{f[0], "limits.xds.tls.enabled"},
			wrong: f[1] != "" && !x.TLS.Enabled,
			text:  f[0] + " is set and limits.xds.tls.enabled is false: the xDS server is spoken to without TLS",
		})
	}
	return conflicts
}

// headerConflicts finds names that are used twice, or that mean something else in a
// response. HTTP ignores case in them.
func headerConflicts(h *Headers) []settingsConflict {
	names := []string{"headers.limit", "headers.remaining", "headers.reset"}
	headers := []string{h.Limit, h.Remaining, h.Reset}
	var conflicts []settingsConflict
	for i, header := range headers {
		conflicts = append(conflicts, settingsConflict{
			names: []string{names[i], "headers.style"},
			wrong: h.Style == HeadersRateLimit && strings.EqualFold(header, "retry-after"),
			text:  names[i] + " is " + foundText(header) + ", which tells when to come back; name another header",
		}, settingsConflict{
			names: []string{names[i], "headers.style"},
			wrong: h.Style == HeadersRateLimit && isOfHTTP(header),
			text:  names[i] + " is " + foundText(header) + ", which HTTP has for itself; name another header",
		})
		for j, other := range headers[:i] {
			conflicts = append(conflicts, settingsConflict{
				names: []string{names[i], names[j], "headers.style"},
				wrong: h.Style == HeadersRateLimit && strings.EqualFold(header, other),
				text:  names[j] + " and " + names[i] + " are both " + foundText(header) + "; each needs a header of its own",
			})
		}
	}
	return conflicts
}

func redisConflicts(s *Settings) []settingsConflict {
	r := &s.Redis
	return append(pairConflicts("redis.tls", r.TLS.Cert, r.TLS.Key),
		settingsConflict{
			names: []string{"redis.addresses", "redis.mode"},
			wrong: r.Mode == RedisSingle && len(r.Addresses) > 1,
			text:  "redis.addresses are several and redis.mode is single, which has one; is it cluster (or sentinel)?",
		},
		settingsConflict{
			names: []string{"redis.addresses", "redis.mode"},
			wrong: r.Mode != RedisSingle && onUnixSocket(r),
			text:  "redis.addresses name a unix socket and redis.mode is " + string(r.Mode) + ", which leads to other machines; a socket is for mode single",
		},
		settingsConflict{
			names: []string{"redis.addresses", "redis.tls.enabled", "redis.tls.server_name"},
			wrong: r.Mode == RedisSingle && onUnixSocket(r) && r.TLS.Enabled && r.TLS.ServerName == "" && !r.TLS.InsecureAnyServerName,
			text:  "redis.addresses name a unix socket, which has no host name for redis.tls to hold against the certificate; set redis.tls.server_name",
		},
		settingsConflict{
			names: []string{"redis.tls.insecure_any_server_name", "redis.tls.server_name"},
			wrong: r.TLS.InsecureAnyServerName && r.TLS.ServerName != "",
			text:  "redis.tls.insecure_any_server_name is true and redis.tls.server_name is set; leave one out",
		},
		settingsConflict{
			names: []string{"redis.mode", "redis.sentinel_master"},
			wrong: r.Mode == RedisSentinel && r.SentinelMaster == "",
			text:  "redis.mode is sentinel and redis.sentinel_master is not set; it is the name that sentinel.conf gives the master",
		},
		settingsConflict{
			names: []string{"redis.database", "redis.mode"},
			wrong: r.Mode == RedisCluster && r.Database != 0,
			text:  "redis.database is not 0 and redis.mode is cluster, which has database 0 only",
		},
		settingsConflict{
			names: []string{"redis.password", "redis.password_file"},
			wrong: r.Password.IsSet() && r.PasswordFile != "",
			text:  "redis.password and redis.password_file are both set; leave one empty",
		},
	)
}

func onUnixSocket(r *Redis) bool {
	return slices.ContainsFunc(r.Addresses, func(address string) bool { return strings.HasPrefix(address, unixScheme) })
}

// warnIdleTLS warns if TLS is prepared but not enabled: the password is sent in the
// clear.
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

// warnIdleHealth warns if failure.health should take a daemon out of its load balancer
// but does not, because with this failure mode the daemon keeps answering.
func (l *settingsLoader) warnIdleHealth(s *Settings) {
	f := &s.Failure
	if f.Health != HealthNotServing || f.Mode == bucket.FailError || !l.good("failure.health", "failure.mode") {
		return
	}
	l.warnf("%s: failure.health is not_serving and failure.mode is %s: the daemon answers without Redis and stays serving; it counts with error only",
		l.whereFirst("failure.health"), f.Mode)
}

// isOfHTTP reports whether a header says how to read a response or how its connection
// continues.
func isOfHTTP(header string) bool {
	switch strings.ToLower(header) {
	case "connection", "content-encoding", "content-length", "content-type", "keep-alive", "proxy-connection",
		"te", "trailer", "transfer-encoding", "upgrade":
		return true
	}
	return false
}
