package settings

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// envoyCase is an environment beside overTCP, and what it comes to: settings
// that change, or a part of the warning or of the error, or nothing at all.
type envoyCase struct {
	environ         []string
	set, warn, fail string
}

func sets(set string, environ ...string) envoyCase   { return envoyCase{environ: environ, set: set} }
func warns(warn string, environ ...string) envoyCase { return envoyCase{environ: environ, warn: warn} }
func fails(fail string, environ ...string) envoyCase { return envoyCase{environ: environ, fail: fail} }
func idle(environ ...string) envoyCase               { return envoyCase{environ: environ} }
func withTLS(environ ...string) []string             { return append(environ, tlsOn...) }
func (c envoyCase) beside(environ ...string) envoyCase {
	c.environ = append(c.environ, environ...)
	return c
}

var tlsOn = []string{"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=PEM", "GRPC_SERVER_TLS_KEY=PEM"}

// tracingSet is what spans always have by that service's name.
const tracingSet = " tracing.propagators=tracecontext,b3,b3multi,baggage "

const (
	xdsOn  = "CONFIG_TYPE=GRPC_XDS_SOTW"
	xdsSet = "limits.source=xds limits.path=/etc/ratelimitd/limits limits.xds.address=localhost:18000 limits.xds.node_id=default"
)

const (
	statsdSet = "statsd.address=localhost:8125 statsd.protocol=tcp"
	dogSet    = "statsd.address=localhost:8125 statsd.dog=true"
)

const tlsSet = "grpc.tls.cert=PEM grpc.tls.key=PEM"

// envoyCases are the cases of each variable. The first is of the variable at
// work.
var envoyCases = map[string][]envoyCase{
	"HOST": {sets("http.address=127.0.0.1:8080", "HOST=127.0.0.1"), sets("http.address=[::1]:8080", "HOST=::1"), sets("http.address=:8080", "HOST="),
		fails(`variable HOST: found "a b:8080"; allowed: host:port`, "HOST=a b")},
	"PORT": {sets("http.address=0.0.0.0:9999", "PORT=9999"), sets("http.address=0.0.0.0:9998", "PORT=0x270e"), sets("http.address=h:1", "PORT=1", "HOST=h"),
		fails(`variable PORT: found "abc"; allowed: an integer`, "PORT=abc"), fails(`variable PORT: found ""; allowed: an integer`, "PORT="),
		fails(`variable PORT: found "65536"; allowed: an integer from 0 to 65535`, "PORT=65536"), fails(`variable PORT: found "-1"`, "PORT=-1")},
	"DEBUG_HOST": {sets("admin.address=127.0.0.2:6070 admin.pprof=true", "DEBUG_HOST=127.0.0.2"),
		{
			environ: []string{"DEBUG_HOST=10.0.0.1"}, set: "admin.address=10.0.0.1:6070",
			warn: `variable DEBUG_HOST: others reach admin.address "10.0.0.1:6070" and nothing says who they are, so the admin API (explain, assign, top) is off; to have both, give --admin-tokens-file`,
		},
		sets("admin.address=127.0.0.1:6070 admin.pprof=true", "DEBUG_HOST=127.0.0.1")},
	"DEBUG_PORT": {sets("admin.address=0.0.0.0:1", "DEBUG_PORT=1"), fails(`variable DEBUG_PORT: found "tcp://10.0.0.1:6070"`, "DEBUG_PORT=tcp://10.0.0.1:6070")},
	"GRPC_UDS":   {sets("grpc.socket=/run/rl.sock", "GRPC_UDS=/run/rl.sock"), idle("GRPC_UDS=")},
	"GRPC_HOST":  {sets("grpc.address=127.0.0.1:8081", "GRPC_HOST=127.0.0.1")},
	"GRPC_PORT":  {sets("grpc.address=0.0.0.0:81", "GRPC_PORT=81")},
	"GRPC_MAX_CONNECTION_AGE": {sets("grpc.max_connection_age=30s", "GRPC_MAX_CONNECTION_AGE=30s"), sets("grpc.max_connection_age=0s", "GRPC_MAX_CONNECTION_AGE=0"),
		fails(`variable GRPC_MAX_CONNECTION_AGE: found "30"; allowed: a duration from 0s to 8760h`, "GRPC_MAX_CONNECTION_AGE=30"),
		fails(`variable GRPC_MAX_CONNECTION_AGE: found "-1s"; allowed: a duration from 0s to 8760h`, "GRPC_MAX_CONNECTION_AGE=-1s")},
	"GRPC_MAX_CONNECTION_AGE_GRACE": {sets("grpc.max_connection_age_grace=1m30s", "GRPC_MAX_CONNECTION_AGE_GRACE=90s")},
	"GRPC_SERVER_USE_TLS": {sets(tlsSet, tlsOn...), idle("GRPC_SERVER_USE_TLS=F"), idle("GRPC_SERVER_TLS_CERT=PEM", "GRPC_SERVER_TLS_KEY=PEM"),
		fails("variable GRPC_SERVER_USE_TLS: it is true; set GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY too", "GRPC_SERVER_USE_TLS=1", "GRPC_SERVER_TLS_CERT=PEM"),
		fails(`variable GRPC_SERVER_USE_TLS: found "yes"; allowed: true or false`, "GRPC_SERVER_USE_TLS=yes")},
	"GRPC_SERVER_TLS_CERT": {sets(tlsSet, tlsOn...), fails("variable GRPC_SERVER_TLS_CERT: grpc.tls.cert: found a file that can't be read: open /none", "GRPC_SERVER_TLS_CERT=/none").beside(tlsOn...)},
	"GRPC_SERVER_TLS_KEY":  {sets(tlsSet, tlsOn...)},
	"GRPC_CLIENT_TLS_CACERT": {
		// There HTTP stays open without a word, and a probe asks it; here with one.
		{environ: withTLS("GRPC_CLIENT_TLS_CACERT=PEM"), set: tlsSet + " grpc.tls.client_ca=PEM", warn: "variable GRPC_CLIENT_TLS_CACERT: grpc.tls.client_ca asks gRPC's clients for certificates, and HTTP on"},
		fails("variable GRPC_CLIENT_TLS_CACERT: it asks for certificates of clients, and GRPC_SERVER_USE_TLS is not true", "GRPC_CLIENT_TLS_CACERT=PEM"),
		idle("GRPC_CLIENT_TLS_CACERT=")},
	"GRPC_CLIENT_TLS_SAN": {
		{environ: withTLS("GRPC_CLIENT_TLS_CACERT=PEM", "GRPC_CLIENT_TLS_SAN=envoy.test"), set: tlsSet + " grpc.tls.client_ca=PEM grpc.tls.client_names=envoy.test", warn: "HTTP on"},
		fails("variable GRPC_CLIENT_TLS_SAN: grpc.tls.client_names is set and grpc.tls.client_ca is not", withTLS("GRPC_CLIENT_TLS_SAN=envoy.test")...),
		fails("variable GRPC_CLIENT_TLS_SAN: it asks for certificates of clients", "GRPC_CLIENT_TLS_SAN=envoy.test")},
	"LOG_LEVEL": {sets("log.level=debug", "LOG_LEVEL=Debug"), sets("log.level=debug", "LOG_LEVEL=trace"), sets("log.level=error", "LOG_LEVEL=FATAL"), idle("LOG_LEVEL=warning"),
		fails(`variable LOG_LEVEL: found "loud"; allowed: debug, info,`, "LOG_LEVEL=loud"), fails(`variable LOG_LEVEL: found ""`, "LOG_LEVEL=")},
	"LOG_FORMAT": {sets("log.format=json", "LOG_FORMAT=JSON"), idle("LOG_FORMAT=pretty")},

	"CONFIG_TYPE": {sets(xdsSet, "CONFIG_TYPE=GRPC_XDS_SOTW"), idle("CONFIG_TYPE=FILE"),
		fails(`variable CONFIG_TYPE: found "disk"; allowed: FILE, or GRPC_XDS_SOTW`, "CONFIG_TYPE=disk")},
	"FORCE_START_WITHOUT_INITIAL_CONFIG": {sets("limits.initial=optional", "FORCE_START_WITHOUT_INITIAL_CONFIG=true"), idle("FORCE_START_WITHOUT_INITIAL_CONFIG=0"),
		sets("limits.source=xds limits.path=/etc/ratelimitd/limits limits.initial=optional limits.ready_before_loaded=true limits.xds.address=localhost:18000 limits.xds.node_id=default", "FORCE_START_WITHOUT_INITIAL_CONFIG=true", xdsOn)},
	"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": {sets("limits.ready_when_empty=false", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=t")},
	"CONFIG_GRPC_XDS_NODE_ID": {sets("limits.source=xds limits.path=/etc/ratelimitd/limits limits.xds.address=localhost:18000 limits.xds.node_id=x", "CONFIG_GRPC_XDS_NODE_ID=x", xdsOn), idle("CONFIG_GRPC_XDS_NODE_ID=x"),
		fails(`variable CONFIG_GRPC_XDS_NODE_ID: found ""`, "CONFIG_GRPC_XDS_NODE_ID=", xdsOn)},
	"CONFIG_GRPC_XDS_NODE_METADATA": {sets(xdsSet+" limits.xds.node_metadata=a=b,c=d=e", "CONFIG_GRPC_XDS_NODE_METADATA=c=d=e, a=b", xdsOn), idle("CONFIG_GRPC_XDS_NODE_METADATA=a:b"),
		fails(`variable CONFIG_GRPC_XDS_NODE_METADATA: found "a:b"; allowed: key=value,key=value,..., or empty for none`, "CONFIG_GRPC_XDS_NODE_METADATA=a:b", xdsOn)},
	"CONFIG_GRPC_XDS_SERVER_URL": {sets("limits.source=xds limits.path=/etc/ratelimitd/limits limits.xds.address=x:1 limits.xds.node_id=default", "CONFIG_GRPC_XDS_SERVER_URL=x:1", xdsOn), idle("CONFIG_GRPC_XDS_SERVER_URL=x:1"),
		sets("limits.source=xds limits.path=/etc/ratelimitd/limits limits.xds.address=x:1 limits.xds.node_id=default", "CONFIG_GRPC_XDS_SERVER_URL=dns:///x:1", xdsOn),
		fails(`variable CONFIG_GRPC_XDS_SERVER_URL: found "http://x:1"; allowed: host:port`, "CONFIG_GRPC_XDS_SERVER_URL=http://x:1", xdsOn),
		fails(`variable CONFIG_GRPC_XDS_SERVER_URL: limits.xds.address is not set and limits.source is xds`, "CONFIG_GRPC_XDS_SERVER_URL=", xdsOn)},
	"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": {sets(xdsSet+" limits.xds.headers=authorization:***,b:***", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=Authorization: hunter:2,b:c", xdsOn),
		idle("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=a:b"),
		fails(`variable CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: found ***; allowed: name:value,name:value,...`, "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=hunter", xdsOn)},
	"CONFIG_GRPC_XDS_SERVER_USE_TLS": {sets(xdsSet+" limits.xds.tls.enabled=true", "CONFIG_GRPC_XDS_SERVER_USE_TLS=true", xdsOn), idle("CONFIG_GRPC_XDS_SERVER_USE_TLS=true")},
	"CONFIG_GRPC_XDS_CLIENT_TLS_CERT": {sets(xdsSet+" limits.xds.tls.enabled=true limits.xds.tls.cert=PEM limits.xds.tls.key=PEM", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=PEM", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY=PEM", "CONFIG_GRPC_XDS_SERVER_USE_TLS=true", xdsOn),
		idle("CONFIG_GRPC_XDS_CLIENT_TLS_CERT=x"), sets(xdsSet, "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=x", xdsOn),
		fails("variable CONFIG_GRPC_XDS_CLIENT_TLS_CERT: limits.xds.tls.cert is set and limits.xds.tls.key is not", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=PEM", "CONFIG_GRPC_XDS_SERVER_USE_TLS=true", xdsOn)},
	"CONFIG_GRPC_XDS_CLIENT_TLS_KEY": {fails("limits.xds.tls.key is set and limits.xds.tls.cert is not", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY=PEM", "CONFIG_GRPC_XDS_SERVER_USE_TLS=true", xdsOn)},
	"CONFIG_GRPC_XDS_SERVER_TLS_CACERT": {sets(xdsSet+" limits.xds.tls.enabled=true limits.xds.tls.ca=PEM", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT=PEM", "CONFIG_GRPC_XDS_SERVER_USE_TLS=true", xdsOn),
		fails("limits.xds.tls.ca: found a file that can't be read", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/none", "CONFIG_GRPC_XDS_SERVER_USE_TLS=true", xdsOn)},
	"CONFIG_GRPC_XDS_SERVER_TLS_SAN": {sets(xdsSet+" limits.xds.tls.enabled=true limits.xds.tls.server_name=x", "CONFIG_GRPC_XDS_SERVER_TLS_SAN=x", "CONFIG_GRPC_XDS_SERVER_USE_TLS=true", xdsOn)},
	"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES": {sets(xdsSet+" limits.xds.max_bytes=4194304", "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=4194304", xdsOn), sets(xdsSet, "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=0", xdsOn),
		idle("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=1"), fails(`variable XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES: found "1"; allowed: an integer from 65536`, "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=1", xdsOn)},

	"RUNTIME_ROOT":         {sets("limits.path=/data/config", "RUNTIME_ROOT=/data"), sets("limits.path=config", "RUNTIME_ROOT=")},
	"RUNTIME_SUBDIRECTORY": {sets("limits.path=/srv/runtime_data/current/ratelimit/config", "RUNTIME_SUBDIRECTORY=ratelimit"), sets("limits.path=/data/a/b/c", "RUNTIME_ROOT=/data/", "RUNTIME_SUBDIRECTORY=a/b", "RUNTIME_APPDIRECTORY=c")},
	"RUNTIME_APPDIRECTORY": {sets("limits.path=/srv/runtime_data/current/limits", "RUNTIME_APPDIRECTORY=limits"), sets("limits.path=/srv/runtime_data/current", "RUNTIME_APPDIRECTORY="),
		fails("variable RUNTIME_APPDIRECTORY: found NEIGHBOURS/config.yaml beside the folder config, which envoyproxy/ratelimit loads too", "RUNTIME_ROOT=NEIGHBOURS"),
		sets("limits.path=NEIGHBOURS/config", "RUNTIME_ROOT=NEIGHBOURS", "RUNTIME_WATCH_ROOT=false")},
	"RUNTIME_IGNOREDOTFILES": {idle("RUNTIME_IGNOREDOTFILES=true"), warns("RUNTIME_IGNOREDOTFILES (names that begin with a dot", "RUNTIME_IGNOREDOTFILES=false"), fails("variable RUNTIME_IGNOREDOTFILES: found", "RUNTIME_IGNOREDOTFILES=yes")},
	"RUNTIME_WATCH_ROOT":     {idle("RUNTIME_WATCH_ROOT=false")},

	"MERGE_DOMAIN_CONFIG":            {sets("limits.merge_domains=true", "MERGE_DOMAIN_CONFIG=true"), idle("MERGE_DOMAIN_CONFIG=false")},
	"SHADOW_MODE":                    {sets("limits.shadow_mode=true", "SHADOW_MODE=1"), fails(`variable SHADOW_MODE: found "on"`, "SHADOW_MODE=on")},
	"QUOTA_MODE":                     {sets("limits.quota_mode=true", "QUOTA_MODE=true")},
	"RESPONSE_DYNAMIC_METADATA":      {sets("api.dynamic_metadata=true", "RESPONSE_DYNAMIC_METADATA=true")},
	"LIMIT_RESPONSE_HEADERS_ENABLED": {sets("headers.style=ratelimit", "LIMIT_RESPONSE_HEADERS_ENABLED=true"), idle("LIMIT_RESPONSE_HEADERS_ENABLED=false")},
	"LIMIT_LIMIT_HEADER": {sets("headers.style=ratelimit headers.limit=X-Limit", "LIMIT_LIMIT_HEADER=X-Limit", "LIMIT_RESPONSE_HEADERS_ENABLED=true"), idle("LIMIT_LIMIT_HEADER=a b"),
		fails(`variable LIMIT_LIMIT_HEADER: found "a b"; allowed: 1 to 64 letters, digits`, "LIMIT_LIMIT_HEADER=a b", "LIMIT_RESPONSE_HEADERS_ENABLED=true")},
	"LIMIT_REMAINING_HEADER": {sets("headers.style=ratelimit headers.remaining=X-Left", "LIMIT_REMAINING_HEADER=X-Left", "LIMIT_RESPONSE_HEADERS_ENABLED=true")},
	"LIMIT_RESET_HEADER":     {sets("headers.style=ratelimit headers.reset=X-Reset", "LIMIT_RESET_HEADER=X-Reset", "LIMIT_RESPONSE_HEADERS_ENABLED=true")},

	"BACKEND_TYPE": {idle("BACKEND_TYPE=redis"), idle("BACKEND_TYPE="), fails(`variable BACKEND_TYPE: found "memcache"; allowed: redis, or memory for limits of this daemon alone`, "BACKEND_TYPE=memcache"),
		sets("store=memory redis.addresses=127.0.0.1:6379 redis.timeout=100ms failure.mode=local", "BACKEND_TYPE=memory")},
	"REDIS_SOCKET_TYPE": {sets("redis.addresses=unix:/run/r.sock", "REDIS_SOCKET_TYPE=unix", "REDIS_URL=/run/r.sock"),
		fails(`variable REDIS_URL: found "redis:6379" and REDIS_SOCKET_TYPE=unix; allowed: a socket's path with unix, host:port with tcp`, "REDIS_SOCKET_TYPE=unix"),
		fails(`variable REDIS_SOCKET_TYPE: found "udp"; allowed: unix or tcp`, "REDIS_SOCKET_TYPE=udp"),
		sets("redis.mode=cluster", "REDIS_SOCKET_TYPE=unix", "REDIS_TYPE=cluster")},
	"REDIS_TYPE": {sets("redis.mode=cluster redis.addresses=a:1,b:2", "REDIS_TYPE=CLUSTER", "REDIS_URL=a:1, b:2"), idle("REDIS_TYPE=Single"),
		sets("redis.mode=sentinel redis.addresses=s1:26379,s2:26379 redis.sentinel_master=mymaster", "REDIS_TYPE=sentinel", "REDIS_URL=mymaster,s1:26379,s2:26379"),
		fails(`variable REDIS_URL: found "s1:26379"; allowed: the master's name and the sentinels`, "REDIS_TYPE=sentinel", "REDIS_URL=s1:26379"),
		fails(`variable REDIS_URL: found "s1:26379,s2:26379"; allowed: the master's name and the sentinels`, "REDIS_TYPE=sentinel", "REDIS_URL=s1:26379,s2:26379"),
		fails(`variable REDIS_URL: found "/run/r.sock"; allowed: host:port,host:port,..., since REDIS_TYPE is cluster`, "REDIS_TYPE=Cluster", "REDIS_URL=/run/r.sock"),
		fails(`variable REDIS_TYPE: found "ring"; allowed: single, sentinel or cluster, in upper or lower case`, "REDIS_TYPE=ring")},
	"REDIS_URL": {sets("redis.addresses=r:1", "REDIS_URL=r:1"),
		sets("redis.addresses=r:6379 redis.database=11", "REDIS_URL=redis://r/11"),
		sets("redis.addresses=r:1 redis.username=me redis.password=***", "REDIS_URL=redis://me:hunter2@r:1"),
		sets("redis.addresses=r:1 redis.password=***", "REDIS_URL=redis://:hunter2@r:1/"),
		sets("redis.addresses=r:1 redis.tls.enabled=true", "REDIS_URL=rediss://r:1"),
		sets("redis.mode=cluster redis.addresses=a:1,b:2", "REDIS_TYPE=cluster", "REDIS_URL=redis://a:1,redis://b:2"),
		fails(`variable REDIS_URL: found "***@r:1/x"; allowed: host:port, or redis://`, "REDIS_URL=redis://me:hunter2@r:1/x"),
		fails(`variable REDIS_URL: found "***@r:1/0"; allowed: host:port, or redis://user:password@host:port/database`, "REDIS_URL=redis://me:hunter2@r:1/0?x=hunter2"),
		fails(`variable REDIS_URL: found "http://r:1"; allowed: host:port, or redis://`, "REDIS_URL=http://r:1"),
		fails(`variable REDIS_URL: found "redis"; allowed: one or more host:port`, "REDIS_URL=redis"),
		fails(`variable REDIS_URL: found "/run/r.sock" and REDIS_SOCKET_TYPE=tcp; allowed: a socket's path`, "REDIS_URL=/run/r.sock"),
		fails(`variable REDIS_URL: found "***@b:1"; allowed: host:port,host:port,..., since REDIS_TYPE is cluster`, "REDIS_TYPE=cluster", "REDIS_URL=a:1,redis://u:hunter2@b:1"),
		fails(`variable REDIS_URL: found "***@b:1"; allowed: host:port,host:port,...`, "REDIS_TYPE=cluster", "REDIS_URL=redis://u:hunter2,hunter3@b:1"),
		fails(`variable REDIS_URL: found "***@b:1"; allowed: host:port,host:port,...`, "REDIS_TYPE=sentinel", "REDIS_URL=m,redis://u:hunter2,hunter3@b:1"),
		fails(`variable REDIS_URL: found "***"; allowed: host:port, or redis://`, "REDIS_URL=redis://u:hunter2?hunter3@b:1"),
		fails(`variable REDIS_URL: found "***"; allowed: host:port, or redis://`, "REDIS_URL=redis://b:1?password=hunter2@hunter3"),
		fails(`variable REDIS_URL: found "***"; allowed: the master's name and the sentinels`, "REDIS_TYPE=sentinel", "REDIS_URL=u:hunter2?hunter3@b:1,c:1")},
	"REDIS_AUTH": {sets("redis.password=***", "REDIS_AUTH=hunter2"), sets("redis.username=me redis.password=***", "REDIS_AUTH=me:hunter2:x"), idle("REDIS_AUTH="),
		sets("redis.addresses=r:1 redis.password=***", "REDIS_AUTH=hunter2", "REDIS_URL=redis://me:hunter3@r:1")},
	"REDIS_SENTINEL_AUTH": {sets("redis.mode=sentinel redis.addresses=s:1 redis.sentinel_master=m redis.sentinel_username=me redis.sentinel_password=***", "REDIS_SENTINEL_AUTH=me:hunter2", "REDIS_TYPE=sentinel", "REDIS_URL=m,s:1"),
		idle("REDIS_SENTINEL_AUTH=hunter2")},
	"REDIS_TLS":             {sets("redis.tls.enabled=true", "REDIS_TLS=true")},
	"REDIS_TLS_CLIENT_CERT": {sets("redis.tls.enabled=true redis.tls.cert=PEM redis.tls.key=PEM", "REDIS_TLS=1", "REDIS_TLS_CLIENT_CERT=PEM", "REDIS_TLS_CLIENT_KEY=PEM")},
	"REDIS_TLS_CLIENT_KEY":  {sets("redis.tls.enabled=true redis.tls.cert=PEM redis.tls.key=PEM", "REDIS_TLS=1", "REDIS_TLS_CLIENT_CERT=PEM", "REDIS_TLS_CLIENT_KEY=PEM")},
	"REDIS_TLS_CACERT": {sets("redis.tls.enabled=true redis.tls.ca=PEM", "REDIS_TLS=1", "REDIS_TLS_CACERT=PEM"),
		{environ: []string{"REDIS_TLS_CACERT=PEM"}, set: "redis.tls.ca=PEM", warn: "variable REDIS_TLS_CACERT: redis.tls.ca is set and redis.tls.enabled is false"}},
	"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION": {sets("redis.tls.enabled=true redis.tls.insecure_any_server_name=true", "REDIS_TLS=1", "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true"),
		sets("redis.addresses=unix:/r.sock redis.tls.enabled=true redis.tls.insecure_any_server_name=true", "REDIS_TLS=1", "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true", "REDIS_SOCKET_TYPE=unix", "REDIS_URL=/r.sock")},
	"REDIS_TIMEOUT": {sets("redis.timeout=250ms", "REDIS_TIMEOUT=250ms"), idle("REDIS_TIMEOUT=10s"), warns("REDIS_TIMEOUT (at most 10s here)", "REDIS_TIMEOUT=30s"), warns("REDIS_TIMEOUT (", "REDIS_TIMEOUT=0"),
		fails(`variable REDIS_TIMEOUT: found "-1s"; allowed: a duration from 1ms to 10s`, "REDIS_TIMEOUT=-1s")},
	"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION": {sets("failure.health=not_serving", "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true")},
	"REDIS_PERSECOND":                      {warns("REDIS_PERSECOND (the limits per second are kept in the Redis of REDIS_URL", "REDIS_PERSECOND=true"), idle("REDIS_PERSECOND=false")},

	"CACHE_KEY_PREFIX": {sets("redis.prefix=prod_", "CACHE_KEY_PREFIX=prod_"), idle("CACHE_KEY_PREFIX="),
		fails(`variable CACHE_KEY_PREFIX: found "a{b}"; allowed: 1 to 32 printable ASCII characters`, "CACHE_KEY_PREFIX=a{b}")},
	"USE_CALENDAR_MONTH_RATE_LIMIT": {warns("USE_CALENDAR_MONTH_RATE_LIMIT (a unit of month has 30 days here: write calendar: month", "USE_CALENDAR_MONTH_RATE_LIMIT=true"), idle("USE_CALENDAR_MONTH_RATE_LIMIT=false")},
	"NEAR_LIMIT_RATIO": {sets("metrics.address=:9090 metrics.names=envoyproxy metrics.near_ratio=0.9", "NEAR_LIMIT_RATIO=9e-1", "USE_PROMETHEUS=true"),
		sets("metrics.address=:9090 metrics.names=envoyproxy", "NEAR_LIMIT_RATIO=0.80", "USE_PROMETHEUS=1"), sets("metrics.near_ratio=0.9", "NEAR_LIMIT_RATIO=0.9"),
		fails(`variable NEAR_LIMIT_RATIO: found "most"; allowed: a number`, "NEAR_LIMIT_RATIO=most"),
		fails(`variable NEAR_LIMIT_RATIO: found "1.1"; allowed: a number from 0 to 1`, "NEAR_LIMIT_RATIO=1.1", "USE_PROMETHEUS=true"),
		fails(`variable NEAR_LIMIT_RATIO: found "NaN"; allowed: a number from 0 to 1`, "NEAR_LIMIT_RATIO=NaN", "USE_PROMETHEUS=true")},

	"USE_STATSD": {sets(statsdSet, "USE_STATSD=true"), idle("USE_STATSD=false"), idle("USE_STATSD=true", "DISABLE_STATS=true"),
		sets("metrics.address=:9090 metrics.names=envoyproxy", "USE_STATSD=true", "USE_PROMETHEUS=true")},
	"STATSD_HOST": {sets("statsd.address=statsd:8125 statsd.protocol=tcp", "STATSD_HOST=statsd"), idle("STATSD_HOST=statsd", "USE_STATSD=false"),
		sets("statsd.address=[::1]:8125 statsd.protocol=tcp", "STATSD_HOST=::1"), sets(statsdSet, "STATSD_HOST=", "USE_STATSD=1")},
	"STATSD_PORT": {sets("statsd.address=localhost:9125 statsd.protocol=tcp", "STATSD_PORT=9125", "USE_STATSD=true"),
		sets("statsd.address=localhost:9125 statsd.protocol=tcp", "STATSD_PORT=9125"),
		idle("STATSD_PORT=tcp://10.0.0.1:8125"), // from Kubernetes, for a service of the name
		fails(`variable STATSD_PORT: found "tcp://10.0.0.1:8125"; allowed: an integer from 1 to 65535`, "STATSD_PORT=tcp://10.0.0.1:8125", "USE_STATSD=true")},
	"STATSD_PROTOCOL": {sets("statsd.address=localhost:8125", "STATSD_PROTOCOL=udp", "USE_STATSD=true"), idle("STATSD_PROTOCOL=x"),
		fails(`variable STATSD_PROTOCOL: found "unix"; allowed: udp or tcp`, "STATSD_PROTOCOL=unix", "USE_STATSD=true")},
	"USE_DOG_STATSD": {sets(dogSet, "USE_DOG_STATSD=true"), sets(dogSet, "USE_DOG_STATSD=true", "USE_STATSD=false", "STATSD_PROTOCOL=tcp"), idle("USE_DOG_STATSD=false"),
		sets("metrics.address=:9090 metrics.names=envoyproxy "+dogSet, "USE_DOG_STATSD=true", "USE_PROMETHEUS=true")},
	"USE_DOG_STATSD_MOGRIFIERS": {
		sets(dogSet+` statsd.rules=[{"pattern":"^a\\.(.*)$","name":"b.$1","tags":{"k":"$1","l":"x"}}]`, "USE_DOG_STATSD_MOGRIFIERS=ONE", "USE_DOG_STATSD=true",
			`DOG_STATSD_MOGRIFIER_ONE_PATTERN=^a\.(.*)$`, "DOG_STATSD_MOGRIFIER_ONE_NAME=b.$1", "DOG_STATSD_MOGRIFIER_ONE_TAGS=k:$1,l:x"),
		idle("USE_DOG_STATSD_MOGRIFIERS=x"),
		fails("allowed: a text with a list in JSON", "USE_DOG_STATSD_MOGRIFIERS=x", "USE_DOG_STATSD=true"),
		fails(`variable DOG_STATSD_MOGRIFIER_x_TAGS: found "a"; allowed: key:value,key:value`, "USE_DOG_STATSD_MOGRIFIERS=x", "USE_DOG_STATSD=true",
			"DOG_STATSD_MOGRIFIER_x_PATTERN=a", "DOG_STATSD_MOGRIFIER_x_NAME=a", "DOG_STATSD_MOGRIFIER_x_TAGS=a"),
	},
	"DOG_STATSD_MOGRIFIER_*": {idle("DOG_STATSD_MOGRIFIER_*=x")},
	"STATS_FLUSH_INTERVAL":   {sets(statsdSet+" statsd.interval=1s", "STATS_FLUSH_INTERVAL=1s", "USE_STATSD=true"), idle("STATS_FLUSH_INTERVAL=1s")},
	"DISABLE_STATS":          {idle("DISABLE_STATS=true"), idle("DISABLE_STATS=true", "USE_DOG_STATSD=true")},
	"EXTRA_TAGS": {sets(statsdSet+" statsd.tags=a=b,c=d", "EXTRA_TAGS=c:d,a:b", "USE_STATSD=true"), warns("EXTRA_TAGS (metrics that are fetched bear no labels of the environment", "EXTRA_TAGS=a:b"), idle("EXTRA_TAGS="), idle("EXTRA_TAGS=a:b", "DISABLE_STATS=true"),
		fails(`variable EXTRA_TAGS: found "a"; allowed: key:value,key:value`, "EXTRA_TAGS=a", "USE_STATSD=true")},
	"USE_PROMETHEUS":  {sets("metrics.address=:9090 metrics.names=envoyproxy", "USE_PROMETHEUS=true"), idle("USE_PROMETHEUS=false")},
	"PROMETHEUS_ADDR": {sets("metrics.address=10.0.0.1:9100 metrics.names=envoyproxy", "USE_PROMETHEUS=true", "PROMETHEUS_ADDR=10.0.0.1:9100"), idle("PROMETHEUS_ADDR=:1")},
	"PROMETHEUS_PATH": {sets("metrics.address=:9090 metrics.path=/stats metrics.names=envoyproxy", "USE_PROMETHEUS=true", "PROMETHEUS_PATH=/stats"), idle("PROMETHEUS_PATH=/stats"),
		fails(`variable PROMETHEUS_PATH: found "stats"; allowed: / and a path`, "USE_PROMETHEUS=true", "PROMETHEUS_PATH=stats")},
	"PROMETHEUS_MAPPER_YAML": {{environ: []string{"USE_PROMETHEUS=true", "PROMETHEUS_MAPPER_YAML=/m.yaml"}, set: "metrics.address=:9090 metrics.names=envoyproxy", warn: "PROMETHEUS_MAPPER_YAML (names and labels are those of"}, idle("PROMETHEUS_MAPPER_YAML=/m.yaml")},
	"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS": {{environ: []string{"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS=true", "USE_PROMETHEUS=true"}, set: "metrics.address=:9090 metrics.names=envoyproxy", warn: "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS (ratelimit_service_response_time_seconds has seconds"},
		idle("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS=true"), sets("metrics.address=:9090 metrics.names=envoyproxy", "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS=false", "USE_PROMETHEUS=true")},
	"TRACING_ENABLED": {sets("tracing.enabled=true tracing.protocol=http tracing.sample_ratio=1"+tracingSet+"tracing.service_name=RateLimit", "TRACING_ENABLED=true"), idle("TRACING_ENABLED=false")},
	"TRACING_SERVICE_NAME": {sets("tracing.enabled=true tracing.protocol=http tracing.sample_ratio=1"+tracingSet+"tracing.service_name=envoy-ratelimit", "TRACING_SERVICE_NAME=envoy-ratelimit", "TRACING_ENABLED=true"),
		idle("TRACING_SERVICE_NAME=x")},
	"TRACING_SERVICE_NAMESPACE": {sets("tracing.enabled=true tracing.protocol=http tracing.sample_ratio=1"+tracingSet+"tracing.service_name=RateLimit tracing.service_namespace=gateways", "TRACING_SERVICE_NAMESPACE=gateways", "TRACING_ENABLED=true"),
		idle("TRACING_SERVICE_NAMESPACE=x")},
	"TRACING_SERVICE_INSTANCE_ID": {sets("tracing.enabled=true tracing.protocol=http tracing.sample_ratio=1"+tracingSet+"tracing.service_name=RateLimit tracing.service_instance_id=pod-1", "TRACING_SERVICE_INSTANCE_ID=pod-1", "TRACING_ENABLED=true"),
		idle("TRACING_SERVICE_INSTANCE_ID=x")},
	"TRACING_EXPORTER_PROTOCOL": {sets("tracing.enabled=true tracing.protocol=grpc tracing.sample_ratio=1"+tracingSet+"tracing.service_name=RateLimit", "TRACING_EXPORTER_PROTOCOL=grpc", "TRACING_ENABLED=true"),
		fails(`variable TRACING_EXPORTER_PROTOCOL: found "udp"; allowed: auto, http or grpc`, "TRACING_EXPORTER_PROTOCOL=udp", "TRACING_ENABLED=true"), idle("TRACING_EXPORTER_PROTOCOL=udp")},
	"TRACING_SAMPLING_RATE": {sets("tracing.enabled=true tracing.protocol=http tracing.sample_ratio=0.1"+tracingSet+"tracing.service_name=RateLimit", "TRACING_SAMPLING_RATE=0.1", "TRACING_ENABLED=true"),
		fails(`variable TRACING_SAMPLING_RATE: found "NaN"; allowed: auto or a number from 0 to 1`, "TRACING_SAMPLING_RATE=NaN", "TRACING_ENABLED=true"),
		idle("TRACING_SAMPLING_RATE=x")},
}

// documentedEnvironment are the names of that service's own documents and
// settings.
const documentedEnvironment = `HOST PORT DEBUG_HOST DEBUG_PORT GRPC_HOST GRPC_PORT GRPC_UDS GRPC_MAX_CONNECTION_AGE GRPC_MAX_CONNECTION_AGE_GRACE
GRPC_SERVER_USE_TLS GRPC_SERVER_TLS_CERT GRPC_SERVER_TLS_KEY GRPC_CLIENT_TLS_CACERT GRPC_CLIENT_TLS_SAN LOG_LEVEL LOG_FORMAT
CONFIG_TYPE CONFIG_GRPC_XDS_NODE_ID CONFIG_GRPC_XDS_SERVER_URL CONFIG_GRPC_XDS_SERVER_USE_TLS CONFIG_GRPC_XDS_CLIENT_TLS_CERT
CONFIG_GRPC_XDS_CLIENT_TLS_KEY CONFIG_GRPC_XDS_SERVER_TLS_CACERT CONFIG_GRPC_XDS_SERVER_TLS_SAN XDS_CLIENT_BACKOFF_INITIAL_INTERVAL
FORCE_START_WITHOUT_INITIAL_CONFIG HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED RUNTIME_ROOT RUNTIME_SUBDIRECTORY RUNTIME_APPDIRECTORY
RUNTIME_IGNOREDOTFILES RUNTIME_WATCH_ROOT BACKEND_TYPE REDIS_SOCKET_TYPE REDIS_TYPE REDIS_URL REDIS_AUTH REDIS_TLS REDIS_TLS_CLIENT_CERT
REDIS_TLS_CLIENT_KEY REDIS_TLS_CACERT REDIS_TLS_SKIP_HOSTNAME_VERIFICATION REDIS_SENTINEL_AUTH REDIS_TIMEOUT REDIS_POOL_SIZE
REDIS_PIPELINE_WINDOW REDIS_PIPELINE_LIMIT REDIS_PERSECOND REDIS_PERSECOND_URL REDIS_PERSECOND_TYPE REDIS_PERSECOND_SOCKET_TYPE
REDIS_HEALTH_CHECK_ACTIVE_CONNECTION CACHE_KEY_PREFIX EXPIRATION_JITTER_MAX_SECONDS LOCAL_CACHE_SIZE_IN_BYTES NEAR_LIMIT_RATIO
STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT USE_CALENDAR_MONTH_RATE_LIMIT USE_STATSD STATSD_HOST STATSD_PORT STATSD_PROTOCOL USE_DOG_STATSD USE_DOG_STATSD_MOGRIFIERS USE_PROMETHEUS PROMETHEUS_ADDR PROMETHEUS_PATH
REDIS_CLUSTER_PIPELINE_PARALLELISM REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM
PROMETHEUS_MAPPER_YAML PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS
EXTRA_TAGS STATS_FLUSH_INTERVAL DISABLE_STATS TRACING_ENABLED TRACING_SERVICE_NAME TRACING_EXPORTER_PROTOCOL TRACING_SAMPLING_RATE
MEMCACHE_HOST_PORT MEMCACHE_SRV MEMCACHE_TLS SHADOW_MODE QUOTA_MODE MERGE_DOMAIN_CONFIG RESPONSE_DYNAMIC_METADATA
LIMIT_RESPONSE_HEADERS_ENABLED LIMIT_LIMIT_HEADER LIMIT_REMAINING_HEADER LIMIT_RESET_HEADER`

func TestEachEnvoyVariableIsRead(t *testing.T) {
	var table []string
	for _, v := range envoyVariables() {
		if slices.Contains(table, v.name) {
			t.Errorf("%s stands in the table twice", v.name)
		}
		table = append(table, v.name)
		if len(envoyCases[v.name]) == 0 {
			t.Errorf("%s has no case", v.name)
		}
		if v.remark == "" && len(v.settings) == 0 {
			t.Errorf("%s: neither a setting nor why there is none", v.name)
		}
		for _, name := range v.settings {
			if newLoader().lookup(name) == nil {
				t.Errorf("%s: %s is no setting", v.name, name)
			}
		}
	}
	document, err := os.ReadFile("../../../docs/environment.md")
	if err != nil {
		t.Fatal(err)
	}
	known := regexp.MustCompile("(?m)^\\| `([A-Z_]+)(\\*?)`").FindAllStringSubmatch(string(document), -1)
	for _, name := range strings.Fields(documentedEnvironment) {
		if !slices.ContainsFunc(known, func(row []string) bool {
			return row[1] == name || row[2] != "" && strings.HasPrefix(name, row[1])
		}) {
			t.Errorf("docs/environment.md lacks %s", name)
		}
	}
	dir := t.TempDir()
	places := strings.NewReplacer("PEM", filepath.Join(dir, "pem"), "NEIGHBOURS", dir)
	for _, name := range []string{"pem", "config.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, cases := range envoyCases {
		if !slices.Contains(table, name) {
			t.Errorf("there are cases of %s, which is not in the table", name)
		}
		if _, ok := environOf(cases[0])[name]; !ok {
			t.Errorf("%s: the first case does not set it", name)
		}
		for _, c := range cases {
			t.Run(strings.Join(c.environ, " "), func(t *testing.T) { c.check(t, places) })
		}
	}
}

func environOf(c envoyCase) map[string]string {
	values := map[string]string{}
	for _, assignment := range c.environ {
		name, value, _ := strings.Cut(assignment, "=")
		values[name] = value
	}
	return values
}

func (c envoyCase) check(t *testing.T, places *strings.Replacer) {
	var environ []string
	for _, assignment := range c.environ {
		environ = append(environ, places.Replace(assignment))
	}
	// Of two with one name the first counts.
	s, warnings, err := LoadEnvoy(nil, append(environ, overTCP...))
	said := strings.Join(warnings, "\n")
	switch {
	case c.fail != "" && (err == nil || !strings.Contains(err.Error(), places.Replace(c.fail)) || strings.Contains(err.Error(), "\n")):
		t.Errorf("error %v, want one with %s", err, places.Replace(c.fail))
	case c.fail == "" && err != nil:
		t.Errorf("error %v", err)
	case c.fail == "" && changed(t, s) != places.Replace(c.set):
		t.Errorf("sets %q, want %q", changed(t, s), places.Replace(c.set))
	case len(warnings) > 1 || (said == "") != (c.warn == "") || !strings.Contains(said, c.warn):
		t.Errorf("warnings %q, want one with %q", warnings, c.warn)
	}
	if err != nil {
		said += err.Error()
	}
	if strings.Contains(said, "hunter") {
		t.Errorf("a secret shows: %s", said)
	}
}
