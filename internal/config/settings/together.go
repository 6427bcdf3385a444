package settings

import (
	"fmt"
	"net"
	"regexp"
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
	if !s.Admin.Pprof || loopback(s.Admin.Address) {
		return
	}
	s.Admin.Pprof = false
	l.fail(s.Admin.Address != "" && l.where["admin.pprof"] != "", "admin.pprof is true and admin.address "+foundText(s.Admin.Address)+
		" is not loopback: profiles contain what is in memory, secrets too, and are served on loopback only; set admin.pprof to false or admin.address to 127.0.0.1:6070")
}

// fail reports a mistake in the combination of the settings that a text names, if it is
// one, at the first of them that is set. Those with a refused value cannot be judged.
func (l *loader) fail(wrong bool, text string) {
	if where := l.whereFirst(text); wrong && where != "" {
		l.failf("%s: %s", where, text)
	}
}

// warn is fail with a warning.
func (l *loader) warn(wrong bool, text string) {
	if where := l.whereFirst(text); wrong && where != "" {
		l.warnf("%s: %s", where, text)
	}
}

var settingNames = regexp.MustCompile(`[a-z]+(\.[a-z_]+)+`)

// whereFirst returns the source of the first setting in a text that is set, or "" if a
// value of one of them was refused.
func (l *loader) whereFirst(text string) string {
	names := slices.DeleteFunc(settingNames.FindAllString(text, -1), func(name string) bool { return l.lookup(name) == nil })
	if slices.ContainsFunc(names, func(name string) bool { return l.bad[name] }) {
		return ""
	}
	for _, name := range names {
		if where := l.where[name]; where != "" {
			return where
		}
	}
	return names[0]
}

func (l *loader) checkTogether(s *Settings) {
	l.checkServerTLS("grpc.tls", s.GRPC.TLS)
	l.checkServerTLS("http.tls", s.HTTP.TLS)
	l.checkServerTLS("admin.tls", s.Admin.TLS)
	l.checkAdmin(&s.Admin)
	l.checkHTTP(s)
	l.checkHeaders(&s.Headers)
	l.checkDecisions(&s.Decisions)
	if x := &s.Limits.XDS; s.Limits.Source == SourceXDS {
		l.fail(x.Address == "", "limits.xds.address is not set and limits.source is xds; it is host:port of the server")
		l.checkClientTLS("limits.xds.tls", "the xDS server", tlsfiles.Client{Enabled: x.TLS.Enabled, CA: x.TLS.CA, Cert: x.TLS.Cert, Key: x.TLS.Key, ServerName: x.TLS.ServerName})
	}
	// With the memory store redis.* and failure.* have no effect, so they may be
	// incomplete there.
	if s.Store == StoreRedis {
		l.checkRedis(&s.Redis)
		l.warn(s.Failure.Health == HealthNotServing && s.Failure.Mode != bucket.FailError,
			"failure.health is not_serving and failure.mode is "+s.Failure.Mode.String()+": the daemon answers without Redis and stays serving; failure.health counts with the mode error only")
	}
}

func (l *loader) checkPair(section, cert, key string) {
	c, k := section+".cert", section+".key"
	l.fail(cert != "" && key == "", c+" is set and "+k+" is not; they come together")
	l.fail(cert == "" && key != "", k+" is set and "+c+" is not; they come together")
}

func (l *loader) checkServerTLS(section string, t tlsfiles.Server) {
	cert, key, ca, names := section+".cert", section+".key", section+".client_ca", section+".client_names"
	l.checkPair(section, t.Cert, t.Key)
	l.fail(t.ClientCA != "" && t.Cert == "" && t.Key == "", ca+" is set and "+cert+" and "+key+" are not; without TLS there are no client certificates")
	l.fail(len(t.ClientNames) > 0 && t.ClientCA == "", names+" is set and "+ca+" is not; without it clients are not asked for certificates")
}

// checkClientTLS checks how a server is reached, and warns once if settings of TLS are
// there and TLS is off.
func (l *loader) checkClientTLS(section, server string, t tlsfiles.Client) {
	l.checkPair(section, t.Cert, t.Key)
	for _, f := range [][2]string{{".ca", t.CA}, {".cert", t.Cert}, {".key", t.Key}, {".server_name", t.ServerName}} {
		if f[1] != "" && !t.Enabled {
			l.warn(true, section+f[0]+" is set and "+section+".enabled is false: the connection to "+server+" is without TLS")
			return
		}
	}
}

// checkHTTP finds an HTTP port that takes from anyone what the gRPC port does not.
func (l *loader) checkHTTP(s *Settings) {
	report := l.fail
	if l.likeEnvoy {
		report = l.warn // that service serves HTTP to anyone without comment
	}
	grpc, http, on := s.GRPC.TLS, s.HTTP.TLS, s.HTTP.Address != ""
	report(on && grpc.ClientCA != "" && http.ClientCA == "", "grpc.tls.client_ca asks gRPC's clients for certificates, and HTTP on "+foundText(s.HTTP.Address)+
		" would take the same requests from anyone; set http.tls.cert, http.tls.key and http.tls.client_ca too, or http.address to empty")
	report(on && len(grpc.ClientNames) > 0 && http.ClientCA != "" && len(http.ClientNames) == 0, "grpc.tls.client_names says who may ask over gRPC, and HTTP on "+foundText(s.HTTP.Address)+
		" would take the same requests from other clients; set http.tls.client_names too, or http.address to empty")
	report(!on && s.Auth.Path != "", "auth.path is set and http.address is empty, which is where proxies ask; set it, or auth.path to empty")
}

func (l *loader) checkAdmin(a *Admin) {
	l.fail(a.TokensFile != "" && a.Address == "", "admin.tokens_file is set and admin.address is empty, which is where the admin API is; set it, or admin.tokens_file to empty")
	open := a.Address != "" && !loopback(a.Address)
	l.warn(open && a.TokensFile != "" && a.TLS.Cert == "", "admin.tokens_file is set and admin.address "+foundText(a.Address)+
		" is not loopback: tokens go over the network without TLS; set admin.tls.cert and admin.tls.key")
	// That service has no admin API, so its users do not miss it.
	l.warn(open && strings.Contains(l.where["admin.address"], "DEBUG_HOST") && a.TokensFile == "" && a.TLS.ClientCA == "", "others reach admin.address "+foundText(a.Address)+
		" and nothing says who they are, so the admin API (explain, assign, top) is off; to have both, give --admin-tokens-file a file that ratelimitd token makes;"+
		" or set DEBUG_HOST=127.0.0.1, and --metrics-address for metrics from elsewhere")
}

func (l *loader) checkDecisions(d *Decisions) {
	l.fail(d.Values == HashValues && d.HashKeyFile == "", "decisions.values is hash and decisions.hash_key_file is not set; without a key, a guessed value can be confirmed by its hash")
	l.fail(d.Values == KeepValues && d.HashKeyFile != "", "decisions.hash_key_file is set and decisions.values is keep; set decisions.values to hash, or the file to empty")
	l.fail(d.MaxSize > 0 && d.MaxSize < MinLogSize, fmt.Sprintf("decisions.max_size: found %d; allowed: 0, or %d and more", d.MaxSize, MinLogSize))
	l.fail(d.BytesPerSecond > 0 && d.BytesPerSecond < MinBytesPerSecond, fmt.Sprintf("decisions.bytes_per_second: found %d; allowed: 0, or %d and more", d.BytesPerSecond, MinBytesPerSecond))
}

// checkHeaders finds names that are used twice, or that mean something else in a
// response. HTTP ignores case in them.
func (l *loader) checkHeaders(h *Headers) {
	if h.Style != HeadersRateLimit {
		return
	}
	usedBy := make(map[string]string)
	for _, name := range headersOfHTTP {
		usedBy[name] = "HTTP"
	}
	for _, header := range [][2]string{{"headers.limit", h.Limit}, {"headers.remaining", h.Remaining}, {"headers.reset", h.Reset}} {
		other := usedBy[strings.ToLower(header[1])]
		usedBy[strings.ToLower(header[1])] = header[0]
		l.fail(other != "", header[0]+" is "+foundText(header[1])+", which "+other+" uses; name another header")
	}
}

// headersOfHTTP say how to read a response, when to come back or how the connection
// continues.
var headersOfHTTP = []string{
	"connection", "content-encoding", "content-length", "content-type", "keep-alive", "proxy-connection", "retry-after", "te", "trailer", "transfer-encoding", "upgrade",
}

func (l *loader) checkRedis(r *Redis) {
	socket := slices.ContainsFunc(r.Addresses, func(address string) bool { return strings.HasPrefix(address, unixScheme) })
	l.checkClientTLS("redis.tls", "Redis", r.TLS)
	l.fail(r.Mode == RedisSingle && len(r.Addresses) > 1, "redis.addresses are several and redis.mode is single, which has one; is it cluster (or sentinel)?")
	l.fail(r.Mode != RedisSingle && socket, "redis.addresses name a unix socket and redis.mode is "+string(r.Mode)+", which leads to other machines; a socket is for mode single")
	l.fail(r.Mode == RedisSingle && socket && r.TLS.Enabled && r.TLS.ServerName == "" && !r.TLS.InsecureAnyServerName,
		"redis.addresses name a unix socket, which has no host name to hold against the certificate; set redis.tls.server_name")
	l.fail(r.TLS.InsecureAnyServerName && r.TLS.ServerName != "", "redis.tls.insecure_any_server_name is true and redis.tls.server_name is set; leave one out")
	l.fail(r.Mode == RedisSentinel && r.SentinelMaster == "", "redis.mode is sentinel and redis.sentinel_master is not set; it is the name that sentinel.conf gives the master")
	l.fail(r.Mode == RedisCluster && r.Database != 0, "redis.database is not 0 and redis.mode is cluster, which has database 0 only")
	l.fail(r.Password.IsSet() && r.PasswordFile != "", "redis.password and redis.password_file are both set; leave one empty")
}
