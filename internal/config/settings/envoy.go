package settings

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/pflag"
)

// LoadEnvoy returns the settings that envoyproxy/ratelimit's environment asks for, with
// that service's defaults, overridden by the given flags of fs that BindFlags defined. fs
// may be nil.
//
// One warning names all variables that the daemon does not follow; it is an error where
// that would let requests pass that should not. The error joins all errors, as Load's
// does. Variables that the service does not know are ignored; those of our own settings
// with a warning.
func LoadEnvoy(fs *pflag.FlagSet, environ []string) (Settings, []string, error) {
	l := newLoader()
	l.likeEnvoy = true
	l.addEnvoy(environ)
	return l.load(fs)
}

// envoyEnvironment turns that service's variables into a layer of settings.
type envoyEnvironment struct {
	*loader
	variables []envoyVariable
	given     map[string]bool
	values    map[string]string // those given, and the defaults of the others
}

func (l *loader) addEnvoy(environ []string) {
	e := &envoyEnvironment{loader: l, variables: envoyVariables(), given: make(map[string]bool), values: make(map[string]string)}
	e.read(environ)
	e.listeners()
	for _, v := range e.variables {
		if v.when != nil && v.when(e) {
			e.apply(v)
		}
	}
	e.grpcTLS()
	e.limits()
	e.statsd()
	if strings.EqualFold(e.values["LOG_FORMAT"], "json") {
		e.set("log.format", "json", "LOG_FORMAT")
	}
	if e.isTrue("TRACING_ENABLED") {
		e.set("tracing.propagators", "tracecontext,b3,b3multi,baggage")
	}
	if e.wantsRedis() {
		e.redis()
	}
	e.reportIgnored()
	e.reportOwn()
	e.reportMistaken()
}

// read takes the values of the variables. A boolean that cannot be read is reported, and
// has its default.
func (e *envoyEnvironment) read(environ []string) {
	for _, assignment := range environ {
		name, text, _ := strings.Cut(assignment, "=")
		// Of two with the same name the first counts, as in os.Getenv.
		if !e.given[name] {
			e.given[name], e.values[name] = true, text
		}
	}
	for _, v := range e.variables {
		if e.given[v.name] && (v.byDefault == "true" || v.byDefault == "false") {
			value, err := strconv.ParseBool(e.values[v.name])
			if err != nil {
				e.refuseVariable(v.name, "true or false")
				e.given[v.name] = false
			}
			e.values[v.name] = strconv.FormatBool(value)
		}
		if !e.given[v.name] {
			e.values[v.name] = v.byDefault
		}
	}
}

// refuseVariable reports a variable's value.
func (e *envoyEnvironment) refuseVariable(name, allowed string) {
	e.failf("variable %s: found %s; allowed: %s", name, foundText(e.values[name]), allowed)
}

func (e *envoyEnvironment) isTrue(name string) bool { return e.values[name] == "true" }

// set applies a value to a setting because of variables. If none of them is given, the
// value is a default.
func (e *envoyEnvironment) set(setting, text string, because ...string) {
	where := ""
	switch given := slices.DeleteFunc(because, func(name string) bool { return !e.given[name] }); len(given) {
	case 0:
	case 1:
		where = "variable " + given[0]
	default:
		where = "variables " + strings.Join(given, ", ")
	}
	e.loader.set(e.lookup(setting), text, where)
}

// apply sets the first setting of a variable.
func (e *envoyEnvironment) apply(v envoyVariable) {
	text := e.values[v.name]
	if v.as != nil {
		word, known := v.as[strings.ToLower(text)]
		if !known {
			e.refuseVariable(v.name, v.remark)
			return
		}
		text = word
	}
	if e.given[v.name] || text != "" {
		e.set(v.settings[0], text, v.name)
	}
}

func (e *envoyEnvironment) listeners() {
	for _, l := range []struct{ setting, host, port string }{
		{"http.address", "HOST", "PORT"},
		{"admin.address", "DEBUG_HOST", "DEBUG_PORT"},
		{"grpc.address", "GRPC_HOST", "GRPC_PORT"},
	} {
		port, err := strconv.ParseUint(e.values[l.port], 0, 16)
		if err != nil {
			e.refuseVariable(l.port, "an integer from 0 to 65535")
			continue
		}
		e.set(l.setting, net.JoinHostPort(e.values[l.host], strconv.FormatUint(port, 10)), l.host, l.port)
	}
	// That service reads as much as gRPC does, 4 MiB. A call refused for its size has
	// failed, and by default Envoy lets the request pass: a caller could evade
	// all limits with a long header.
	e.set("grpc.max_bytes", strconv.Itoa(4<<20))
}

func (e *envoyEnvironment) grpcTLS() {
	if e.isTrue("GRPC_SERVER_USE_TLS") {
		if !e.servesTLS() {
			e.failf("variable GRPC_SERVER_USE_TLS: it is true; set GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY too")
		}
		return
	}
	for _, name := range []string{"GRPC_CLIENT_TLS_CACERT", "GRPC_CLIENT_TLS_SAN"} {
		if e.values[name] != "" {
			e.failf("variable %s: it asks for certificates of clients, and GRPC_SERVER_USE_TLS is not true: anyone could ask; set that to true, or leave this out", name)
		}
	}
}

func (e *envoyEnvironment) servesTLS() bool {
	return e.isTrue("GRPC_SERVER_USE_TLS") && e.values["GRPC_SERVER_TLS_CERT"] != "" && e.values["GRPC_SERVER_TLS_KEY"] != ""
}

// limits reads where limits come from. They are accepted as they are.
func (e *envoyEnvironment) limits() {
	e.set("limits.lenient", "true")
	if e.wantsXDS() {
		e.set("limits.xds.address", strings.TrimPrefix(e.values["CONFIG_GRPC_XDS_SERVER_URL"], "dns:///"), "CONFIG_GRPC_XDS_SERVER_URL")
		// Its health check is the liveness probe too: a daemon that waits for limits must
		// not be restarted because of it.
		e.set("limits.ready_before_loaded", e.values["FORCE_START_WITHOUT_INITIAL_CONFIG"], "FORCE_START_WITHOUT_INITIAL_CONFIG")
		return
	}
	app := e.values["RUNTIME_APPDIRECTORY"]
	folder := filepath.Join(e.values["RUNTIME_ROOT"], e.values["RUNTIME_SUBDIRECTORY"], app)
	e.set("limits.path", folder, "RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY")
	if app == "" || !e.isTrue("RUNTIME_WATCH_ROOT") {
		return
	}
	// It joins a path with dots, and so takes all files beside the folder whose names
	// begin with the folder's name and a dot.
	beside, _ := filepath.Glob(folder + ".*") // it fails for bad patterns only
	for _, file := range beside {
		e.failf("variable RUNTIME_APPDIRECTORY: found %s beside the folder %s, which envoyproxy/ratelimit loads too and a daemon does not; allowed: limits in the folder", file, app)
	}
}

func (e *envoyEnvironment) wantsXDS() bool {
	return strings.EqualFold(e.values["CONFIG_TYPE"], "GRPC_XDS_SOTW")
}

func (e *envoyEnvironment) wantsXDSTLS() bool {
	return e.wantsXDS() && e.isTrue("CONFIG_GRPC_XDS_SERVER_USE_TLS")
}

// boundsXDS reports whether a size is given; 0 is that service's word for none.
func (e *envoyEnvironment) boundsXDS() bool {
	size := e.values["XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"]
	return e.wantsXDS() && size != "" && size != "0"
}

// reportIgnored gives one warning about all variables that are not followed.
func (e *envoyEnvironment) reportIgnored() {
	var ignored []string
	for _, v := range e.variables {
		if v.matters != nil && e.given[v.name] && v.matters(e) {
			ignored = append(ignored, fmt.Sprintf("%s (%s)", v.name, v.remark))
		}
	}
	if len(ignored) > 0 {
		e.warnf("variables of envoyproxy/ratelimit that are not followed to the letter: %s", strings.Join(ignored, "; "))
	}
}

// reportOwn gives one warning about all variables of the daemon's own settings. Anyone who
// assumes that the one for the tokens file is read would search for a wrong token.
func (e *envoyEnvironment) reportOwn() {
	var unread []string
	for _, d := range e.table {
		if e.given[d.variable()] {
			unread = append(unread, fmt.Sprintf("%s (use --%s)", d.variable(), d.flag()))
		}
	}
	if len(unread) > 0 {
		e.warnf("variables of the daemon's own settings, which are not read under the name ratelimit: %s", strings.Join(unread, "; "))
	}
}

// InEnvoyNames returns a text in which settings have the names by which a reader of
// envoyproxy/ratelimit's environment can set them: its variables, or else flags.
func InEnvoyNames(text string) string {
	return settingNames.ReplaceAllStringFunc(text, func(name string) string {
		if at := envoyNames()[name]; at != "" {
			return at
		}
		return name
	})
}

// envoyNames returns those names. Of several variables for a setting the last in the table
// says least else.
var envoyNames = sync.OnceValue(func() map[string]string {
	names := make(map[string]string)
	for _, d := range allSettings() {
		if !d.secret {
			names[d.name] = "--" + d.flag()
		}
	}
	for _, v := range envoyVariables() {
		for _, setting := range v.settings {
			names[setting] = v.name
		}
	}
	for setting, variables := range map[string]string{
		"http.address": "HOST and PORT", "grpc.address": "GRPC_HOST and GRPC_PORT", "admin.address": "DEBUG_HOST and DEBUG_PORT",
		"limits.path": "RUNTIME_ROOT", "statsd.address": "STATSD_HOST and STATSD_PORT", "statsd.protocol": "STATSD_PROTOCOL",
	} {
		names[setting] = variables
	}
	return names
})

// reportMistaken warns of variables that many other programs read for a password or user
// of Redis, and that service does not.
func (e *envoyEnvironment) reportMistaken() {
	for _, mistaken := range [...][2]string{
		{"REDIS_PASSWORD", "redis.password"}, {"REDIS_USERNAME", "redis.username"}, {"REDIS_USER", "redis.username"},
		{"REDIS_SENTINEL_PASSWORD", "redis.sentinel_password"},
	} {
		name, setting := mistaken[0], mistaken[1]
		if e.given[name] && e.where[setting] == "" && e.wantsRedis() {
			e.warnf("variable %s: it is not read; set %s to the password, or to user:password", name, envoyNames()[setting])
		}
	}
}

func always(*envoyEnvironment) bool { return true }

func whenTrue(names ...string) func(*envoyEnvironment) bool {
	return func(e *envoyEnvironment) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return !e.isTrue(name) })
	}
}

func whenFalse(name string) func(*envoyEnvironment) bool {
	return func(e *envoyEnvironment) bool { return !e.isTrue(name) }
}
