package settings

import (
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
)

func (e *envoyEnvironment) wantsRedis() bool {
	backend := strings.ToLower(e.values["BACKEND_TYPE"])
	return backend == "redis" || backend == ""
}

func (e *envoyEnvironment) prefixesKeys() bool {
	return e.wantsRedis() && e.values["CACHE_KEY_PREFIX"] != ""
}

func (e *envoyEnvironment) redis() {
	// As in that service, callers get an error and decide themselves.
	e.set("failure.mode", "error")
	timeout := e.values["REDIS_TIMEOUT"]
	if e.redisTimeoutDiffers() {
		timeout = maxRedisTimeout.String()
	}
	e.set("redis.timeout", timeout, "REDIS_TIMEOUT")
	switch strings.ToLower(e.values["REDIS_TYPE"]) {
	case "single":
		e.singleRedis()
	case "sentinel":
		e.sentinels()
	case "cluster":
		e.addresses(e.values["REDIS_URL"])
	}
	e.credentials("redis.username", "redis.password", "REDIS_AUTH")
}

// maxRedisTimeout is the longest redis.timeout.
const maxRedisTimeout = 10 * time.Second

// redisTimeoutDiffers reports whether REDIS_TIMEOUT is longer than the longest timeout
// here. In that service 0 means none at all.
func (e *envoyEnvironment) redisTimeoutDiffers() bool {
	d, err := time.ParseDuration(e.values["REDIS_TIMEOUT"])
	return err == nil && (d > maxRedisTimeout || d == 0)
}

// credentials reads "password" or "user:password".
func (e *envoyEnvironment) credentials(username, password, name string) {
	if e.values[name] == "" {
		return
	}
	user, secret, both := strings.Cut(e.values[name], ":")
	if !both {
		user, secret = "", user
	}
	e.set(username, user, name)
	e.set(password, secret, name)
}

// singleRedis reads the address of a single server.
func (e *envoyEnvironment) singleRedis() {
	target, socketType := e.values["REDIS_URL"], e.values["REDIS_SOCKET_TYPE"]
	isPath := strings.HasPrefix(target, "/")
	switch {
	case socketType != "unix" && socketType != "tcp":
		e.refuseVariable("REDIS_SOCKET_TYPE", "unix or tcp")
	case !e.given["REDIS_URL"]:
		e.failf("variable REDIS_URL: it is not set; allowed: a socket's path, or host:port with REDIS_SOCKET_TYPE=tcp;" +
			" BACKEND_TYPE=memory does without Redis and keeps the limits of this daemon alone")
	case isPath != (socketType == "unix"):
		e.failf("variable REDIS_URL: found %s and REDIS_SOCKET_TYPE=%s; allowed: a socket's path with unix, host:port with tcp", foundURL(target), socketType)
	case isPath:
		e.set("redis.addresses", unixScheme+target, "REDIS_URL")
	case strings.Contains(target, "://"):
		e.redisURL(target)
	default:
		e.set("redis.addresses", target, "REDIS_URL")
	}
}

// foundURL is foundText without the part that may hold a password: the one after a
// question mark. The password may itself contain a question mark, and so begin before it;
// then everything is hidden.
func foundURL(text string) string {
	text, query, _ := strings.Cut(text, "?")
	if strings.Contains(query, "@") {
		text = redacted
	}
	return foundText(text)
}

// redisURL reads redis://user:password@host:port/database, where everything except the
// host may be missing. rediss means TLS.
func (e *envoyEnvironment) redisURL(text string) {
	u, err := url.Parse(text)
	database := ""
	if err == nil {
		database = strings.TrimPrefix(u.Path, "/")
	}
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" || u.Hostname() == "" || u.RawQuery != "" || database != "" && !decimal.MatchString(database) {
		e.failf("variable REDIS_URL: found %s; allowed: host:port, or redis://user:password@host:port/database, or the same with rediss for TLS", foundURL(text))
		return
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	e.set("redis.addresses", net.JoinHostPort(u.Hostname(), port), "REDIS_URL")
	if u.Scheme == "rediss" {
		e.set("redis.tls.enabled", "true", "REDIS_URL")
	}
	if database != "" {
		e.set("redis.database", database, "REDIS_URL")
	}
	if u.User != nil {
		password, _ := u.User.Password()
		e.set("redis.username", u.User.Username(), "REDIS_URL")
		e.set("redis.password", password, "REDIS_URL")
	}
}

// sentinels reads the master's name, followed by the addresses of the sentinels.
func (e *envoyEnvironment) sentinels() {
	master, addresses, _ := strings.Cut(e.values["REDIS_URL"], ",")
	if master == "" || addresses == "" || strings.ContainsAny(master, ":/") {
		e.failf("variable REDIS_URL: found %s; allowed: the master's name and the sentinels, since REDIS_TYPE is sentinel, such as mymaster,sentinel-1:26379,sentinel-2:26379",
			foundURL(e.values["REDIS_URL"]))
		e.bad["redis.sentinel_master"] = true
		return
	}
	e.set("redis.sentinel_master", master, "REDIS_URL")
	e.addresses(addresses)
	e.credentials("redis.sentinel_username", "redis.sentinel_password", "REDIS_SENTINEL_AUTH")
}

// addresses reads a list of host:port, each optionally prefixed with redis://.
func (e *envoyEnvironment) addresses(text string) {
	list := strings.Split(text, ",")
	for i := range list {
		list[i] = strings.TrimPrefix(strings.TrimSpace(list[i]), "redis://")
	}
	if slices.ContainsFunc(list, func(address string) bool {
		// A password may contain a comma, and so span two of them.
		return strings.HasPrefix(address, unixScheme) || strings.HasPrefix(address, "/") || strings.Contains(address, "@")
	}) {
		e.failf("variable REDIS_URL: found %s; allowed: host:port,host:port,..., since REDIS_TYPE is %s", foundURL(text), strings.ToLower(e.values["REDIS_TYPE"]))
		return
	}
	e.set("redis.addresses", strings.Join(list, ","), "REDIS_URL")
}
