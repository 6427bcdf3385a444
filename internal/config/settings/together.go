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
func (l *loader) resolvePprof(s *Settings) {
	if !s.Admin.Pprof || loopback(s.Admin.Address) || !l.good("admin.address", "admin.pprof") {
		return
	}
	s.Admin.Pprof = false
	l.fail(s.Admin.Address != "" && l.where["admin.pprof"] != "",
		"admin.pprof is true and admin.address "+foundText(s.Admin.Address)+" is not loopback: profiles hold what is in memory, "+
			"secrets too, and are served on loopback only; set admin.pprof to false or admin.address to 127.0.0.1:6070", "admin.pprof")
}

// fail reports a mistake in the combination of several settings, if it is one, at the
// first of them that is set.
func (l *loader) fail(wrong bool, text string, names ...string) {
	if wrong && l.good(names...) {
		l.failf("%s: %s", l.whereFirst(names...), text)
	}
}

// warn is fail with a warning.
func (l *loader) warn(wrong bool, text string, names ...string) {
	if wrong && l.good(names...) {
		l.warnf("%s: %s", l.whereFirst(names...), text)
	}
}

func (l *loader) checkTogether(s *Settings) {
	l.checkServerTLS("grpc.tls", s.GRPC.TLS)
	l.checkServerTLS("http.tls", s.HTTP.TLS)
	l.checkServerTLS("admin.tls", s.Admin.TLS)
	l.checkAdmin(&s.Admin)
	l.checkHTTP(s)
	l.checkHeaders(&s.Headers)
	l.checkDecisions(&s.Decisions)
	if s.Limits.Source == SourceXDS {
		l.checkXDS(&s.Limits.XDS)
	}
	// With the memory store redis.* and failure.* have no effect, so they may be
	// incomplete there.
	if s.Store == StoreRedis {
		l.checkRedis(&s.Redis)
		l.warn(s.Failure.Health == HealthNotServing && s.Failure.Mode != bucket.FailError,
			fmt.Sprintf("failure.health is not_serving and failure.mode is %s: the daemon answers without Redis and stays serving; it counts with error only", s.Failure.Mode),
			"failure.health", "failure.mode")
	}
}

func (l *loader) checkPair(section, cert, key string) {
	c, k := section+".cert", section+".key"
	l.fail(cert != "" && key == "", c+" is set and "+k+" is not; they come together", c, k)
	l.fail(cert == "" && key != "", k+" is set and "+c+" is not; they come together", k, c)
}

func (l *loader) checkServerTLS(section string, t tlsfiles.Server) {
	cert, key, ca, names := section+".cert", section+".key", section+".client_ca", section+".client_names"
	l.checkPair(section, t.Cert, t.Key)
	l.fail(t.ClientCA != "" && t.Cert == "" && t.Key == "",
		ca+" is set and "+cert+" and "+key+" are not; without TLS there are no client certificates", ca, cert, key)
	l.fail(len(t.ClientNames) > 0 && t.ClientCA == "",
		names+" is set and "+ca+" is not; without it clients are not asked for certificates", names, ca)
}

// checkHTTP finds an HTTP port that takes from anyone what the gRPC port does not.
func (l *loader) checkHTTP(s *Settings) {
	report := l.fail
	if l.likeEnvoy {
		report = l.warn // that service serves HTTP to anyone without comment
	}
	grpc, http, on := s.GRPC.TLS, s.HTTP.TLS, s.HTTP.Address != ""
	report(on && grpc.ClientCA != "" && http.ClientCA == "",
		"grpc.tls.client_ca asks gRPC's clients for certificates, and HTTP on "+foundText(s.HTTP.Address)+
			" would take the same requests from anyone; set http.tls.cert, http.tls.key and http.tls.client_ca too, or http.address to empty",
		"grpc.tls.client_ca", "http.tls.client_ca", "http.address")
	report(on && len(grpc.ClientNames) > 0 && http.ClientCA != "" && len(http.ClientNames) == 0,
		"grpc.tls.client_names says who may ask over gRPC, and HTTP on "+foundText(s.HTTP.Address)+
			" would take the same requests from other clients; set http.tls.client_names too, or http.address to empty",
		"grpc.tls.client_names", "http.tls.client_names", "http.address")
	report(!on && s.Auth.Path != "",
		"auth.path is set and http.address is empty, which is where proxies ask; set it, or auth.path to empty", "auth.path", "http.address")
}

func (l *loader) checkAdmin(a *Admin) {
	l.fail(a.TokensFile != "" && a.Address == "",
		"admin.tokens_file is set and admin.address is empty, which is where the admin API is; set it, or admin.tokens_file to empty",
		"admin.tokens_file", "admin.address")
	open := a.Address != "" && !loopback(a.Address)
	l.warn(open && a.TokensFile != "" && a.TLS.Cert == "",
		"admin.tokens_file is set and admin.address "+foundText(a.Address)+" is not loopback: tokens go over the network without TLS; set admin.tls.cert and admin.tls.key",
		"admin.tokens_file", "admin.address", "admin.tls.cert")
	// That service has no admin API, so whoever sets DEBUG_HOST does not miss it.
	l.warn(open && strings.Contains(l.where["admin.address"], "DEBUG_HOST") && a.TokensFile == "" && a.TLS.ClientCA == "",
		"others reach admin.address "+foundText(a.Address)+" and nothing says who they are, so the admin API (explain, assign, top) is off; "+
			"to have both, give --admin-tokens-file a file that ratelimitd token makes; or set DEBUG_HOST=127.0.0.1, and --metrics-address for metrics from elsewhere",
		"admin.address")
}

func (l *loader) checkDecisions(d *Decisions) {
	l.fail(d.Values == HashValues && d.HashKeyFile == "",
		"decisions.values is hash and decisions.hash_key_file is not set; without a key who guesses a value can tell it by its hash", "decisions.values", "decisions.hash_key_file")
	l.fail(d.Values == KeepValues && d.HashKeyFile != "",
		"decisions.hash_key_file is set and decisions.values is keep; set decisions.values to hash, or the file to empty", "decisions.hash_key_file", "decisions.values")
	l.fail(d.MaxSize > 0 && d.MaxSize < MinLogSize,
		fmt.Sprintf("decisions.max_size: found %d; allowed: 0, or %d and more", d.MaxSize, MinLogSize), "decisions.max_size")
	l.fail(d.BytesPerSecond > 0 && d.BytesPerSecond < MinBytesPerSecond,
		fmt.Sprintf("decisions.bytes_per_second: found %d; allowed: 0, or %d and more", d.BytesPerSecond, MinBytesPerSecond), "decisions.bytes_per_second")
}

func (l *loader) checkXDS(x *XDS) {
	l.checkPair("limits.xds.tls", x.TLS.Cert, x.TLS.Key)
	l.fail(x.Address == "", "limits.source is xds and limits.xds.address is not set; it is host:port of the server", "limits.xds.address", "limits.source")
	for _, f := range [][2]string{
		{"limits.xds.tls.ca", x.TLS.CA}, {"limits.xds.tls.cert", x.TLS.Cert}, {"limits.xds.tls.server_name", x.TLS.ServerName},
	} {
		l.warn(f[1] != "" && !x.TLS.Enabled,
			f[0]+" is set and limits.xds.tls.enabled is false: the xDS server is spoken to without TLS", f[0], "limits.xds.tls.enabled")
	}
}

// checkHeaders finds names that are used twice, or that mean something else in a
// response. HTTP ignores case in them.
func (l *loader) checkHeaders(h *Headers) {
	if h.Style != HeadersRateLimit {
		return
	}
	names := []string{"headers.limit", "headers.remaining", "headers.reset"}
	headers := []string{h.Limit, h.Remaining, h.Reset}
	for i, header := range headers {
		is := names[i] + " is " + foundText(header)
		l.fail(strings.EqualFold(header, "retry-after"), is+", which tells when to come back; name another header", names[i], "headers.style")
		l.fail(slices.Contains(headersOfHTTP, strings.ToLower(header)), is+", which HTTP has for itself; name another header", names[i], "headers.style")
		for j, other := range headers[:i] {
			l.fail(strings.EqualFold(header, other),
				names[j]+" and "+names[i]+" are both "+foundText(header)+"; each needs a header of its own", names[i], names[j], "headers.style")
		}
	}
}

// headersOfHTTP say how to read a response or how its connection continues.
var headersOfHTTP = []string{
	"connection", "content-encoding", "content-length", "content-type", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
}

func (l *loader) checkRedis(r *Redis) {
	socket := slices.ContainsFunc(r.Addresses, func(address string) bool { return strings.HasPrefix(address, unixScheme) })
	l.checkPair("redis.tls", r.TLS.Cert, r.TLS.Key)
	l.fail(r.Mode == RedisSingle && len(r.Addresses) > 1,
		"redis.addresses are several and redis.mode is single, which has one; is it cluster (or sentinel)?", "redis.addresses", "redis.mode")
	l.fail(r.Mode != RedisSingle && socket,
		"redis.addresses name a unix socket and redis.mode is "+string(r.Mode)+", which leads to other machines; a socket is for mode single", "redis.addresses", "redis.mode")
	l.fail(r.Mode == RedisSingle && socket && r.TLS.Enabled && r.TLS.ServerName == "" && !r.TLS.InsecureAnyServerName,
		"redis.addresses name a unix socket, which has no host name for redis.tls to hold against the certificate; set redis.tls.server_name",
		"redis.addresses", "redis.tls.enabled", "redis.tls.server_name")
	l.fail(r.TLS.InsecureAnyServerName && r.TLS.ServerName != "",
		"redis.tls.insecure_any_server_name is true and redis.tls.server_name is set; leave one out", "redis.tls.insecure_any_server_name", "redis.tls.server_name")
	l.fail(r.Mode == RedisSentinel && r.SentinelMaster == "",
		"redis.mode is sentinel and redis.sentinel_master is not set; it is the name that sentinel.conf gives the master", "redis.mode", "redis.sentinel_master")
	l.fail(r.Mode == RedisCluster && r.Database != 0,
		"redis.database is not 0 and redis.mode is cluster, which has database 0 only", "redis.database", "redis.mode")
	l.fail(r.Password.IsSet() && r.PasswordFile != "",
		"redis.password and redis.password_file are both set; leave one empty", "redis.password", "redis.password_file")
	for _, f := range [][2]string{
		{"redis.tls.ca", r.TLS.CA}, {"redis.tls.cert", r.TLS.Cert}, {"redis.tls.key", r.TLS.Key}, {"redis.tls.server_name", r.TLS.ServerName},
	} {
		if f[1] != "" && !r.TLS.Enabled {
			l.warn(true, f[0]+" is set and redis.tls.enabled is false: Redis is spoken to without TLS", f[0], "redis.tls.enabled")
			return
		}
	}
}
