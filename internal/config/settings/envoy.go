package settings

import (
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// LoadEnvoy returns the settings that envoyproxy/ratelimit's environment asks for, with
// that service's defaults, overridden by the given flags of fs that BindFlags defined. fs
// may be nil.
//
// Values are read as that service reads them. One warning names all variables that the
// daemon does not follow; it is an error where that would let requests pass that should
// not. The error joins all errors, as Load's does. Variables that the service does not
// know are ignored; those of our own settings with a warning.
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
	unread    map[string]bool   // those that the service could not read either
	mogrifier map[string]string // those of rules for statistics names
}

func (l *loader) addEnvoy(environ []string) {
	e := &envoyEnvironment{
		loader:    l,
		variables: envoyVariables(),
		given:     map[string]bool{},
		values:    map[string]string{},
		unread:    map[string]bool{},
		mogrifier: map[string]string{},
	}
	e.read(environ)
	for _, v := range e.variables {
		if v.copied != nil && v.copied(e) {
			e.copy(v)
		}
	}
	e.listeners()
	e.grpcTLS()
	e.logs()
	e.limits()
	e.statsd()
	e.tracing()
	e.store()
	e.reportIgnored()
	e.reportOwn(environ)
}

// read takes the values of the known variables, and reports those that the service could
// not read.
func (e *envoyEnvironment) read(environ []string) {
	for _, v := range e.variables {
		e.values[v.name] = v.byDefault
	}
	for _, assignment := range environ {
		name, text, _ := strings.Cut(assignment, "=")
		// Of two with the same name the first counts, as in os.Getenv.
		if _, had := e.mogrifier[name]; strings.HasPrefix(name, mogrifierPrefix) && !had {
			e.mogrifier[name] = text
		}
		if _, known := e.values[name]; known && !e.given[name] {
			e.values[name], e.given[name] = text, true
		}
	}
	for _, v := range e.variables {
		if allowed := v.kind.refuses(e.values[v.name]); e.given[v.name] && allowed != "" {
			e.unread[v.name] = true
			e.refuseVariable(v.name, allowed)
		}
	}
}

// refuses returns what is allowed if a text is not, and "" if it is.
func (k envoyKind) refuses(text string) (allowed string) {
	var err error
	switch k {
	case envoyInteger:
		_, err = strconv.ParseInt(text, 0, 64)
		allowed = "an integer"
	case envoyBool:
		_, err = strconv.ParseBool(text)
		allowed = "1, t, T, true, TRUE, True, 0, f, F, false, FALSE or False"
	case envoyDuration:
		_, err = time.ParseDuration(text)
		allowed = "a duration with its unit, such as 300ms, 10s or 24h"
	case envoyNumber:
		_, err = strconv.ParseFloat(text, 32)
		allowed = "a number"
	}
	if err == nil {
		return ""
	}
	return allowed
}

// refuseVariable reports a variable's value.
func (e *envoyEnvironment) refuseVariable(name, allowed string) {
	e.failf("variable %s: found %s; allowed: %s", name, foundText(e.values[name]), allowed)
}

// isTrue reports whether a boolean variable is true; one that cannot be read is not.
func (e *envoyEnvironment) isTrue(name string) bool {
	value, err := strconv.ParseBool(e.values[name])
	return err == nil && value
}

// set applies a value to a setting because of variables. If none of them is given, the
// value is a default.
func (e *envoyEnvironment) set(setting, text string, because ...string) {
	var given []string
	for _, name := range because {
		if e.unread[name] {
			return
		}
		if e.given[name] {
			given = append(given, name)
		}
	}
	where := ""
	switch len(given) {
	case 0:
	case 1:
		where = "variable " + given[0]
	default:
		where = "variables " + strings.Join(given, ", ")
	}
	e.loader.set(e.lookup(setting), text, where)
}

// copy applies a variable's text unchanged.
func (e *envoyEnvironment) copy(v envoyVariable) {
	if v.kind == envoyBool {
		e.set(v.settings[0], strconv.FormatBool(e.isTrue(v.name)), v.name)
	} else if e.given[v.name] || e.values[v.name] != "" {
		e.set(v.settings[0], e.values[v.name], v.name)
	}
}

func (e *envoyEnvironment) listeners() {
	for _, l := range []struct{ setting, host, port string }{
		{"http.address", "HOST", "PORT"},
		{"admin.address", "DEBUG_HOST", "DEBUG_PORT"},
		{"grpc.address", "GRPC_HOST", "GRPC_PORT"},
	} {
		if port, err := strconv.ParseInt(e.values[l.port], 0, 64); err == nil {
			if port < 0 || port > 65535 {
				e.refuseVariable(l.port, "an integer from 0 to 65535")
				continue
			}
			e.set(l.setting, net.JoinHostPort(e.values[l.host], strconv.FormatInt(port, 10)), l.host, l.port)
		}
	}
	// That service reads as much as gRPC does, 4 MiB. A call refused for its size has
	// failed, and by default Envoy lets the request pass: a caller could evade
	// all limits with a long header.
	e.set("grpc.max_bytes", strconv.Itoa(4<<20))
}

func (e *envoyEnvironment) grpcTLS() {
	if !e.isTrue("GRPC_SERVER_USE_TLS") {
		for _, name := range []string{"GRPC_CLIENT_TLS_CACERT", "GRPC_CLIENT_TLS_SAN"} {
			if e.values[name] != "" {
				e.failf("variable %s: it asks for certificates of clients, and GRPC_SERVER_USE_TLS is not true: anybody could ask; set that to true, or leave this out", name)
			}
		}
		return
	}
	if !e.servesTLS() {
		e.failf("variable GRPC_SERVER_USE_TLS: it is true; set GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY too")
	}
}

func (e *envoyEnvironment) servesTLS() bool {
	return e.isTrue("GRPC_SERVER_USE_TLS") && e.values["GRPC_SERVER_TLS_CERT"] != "" && e.values["GRPC_SERVER_TLS_KEY"] != ""
}

func (e *envoyEnvironment) logs() {
	level := map[string]string{
		"panic": "error", "fatal": "error", "error": "error", "warn": "warn", "warning": "warn",
		"info": "info", "debug": "debug", "trace": "debug",
	}[strings.ToLower(e.values["LOG_LEVEL"])]
	if level == "" {
		e.refuseVariable("LOG_LEVEL", "panic, fatal, error, warn, warning, info, debug or trace, in any case of letters")
	} else {
		e.set("log.level", level, "LOG_LEVEL")
	}
	format := "text"
	if strings.EqualFold(e.values["LOG_FORMAT"], "json") {
		format = "json"
	}
	e.set("log.format", format, "LOG_FORMAT")
}

func (e *envoyEnvironment) limits() {
	switch e.values["CONFIG_TYPE"] {
	case "FILE":
		e.files()
	case "GRPC_XDS_SOTW":
		e.xds()
	default:
		e.refuseVariable("CONFIG_TYPE", "FILE, for limits in the folder RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY, or GRPC_XDS_SOTW, for those of CONFIG_GRPC_XDS_SERVER_URL")
	}
	// Its limits are accepted as they are.
	e.set("limits.lenient", "true")
	initial := "required"
	if e.isTrue("FORCE_START_WITHOUT_INITIAL_CONFIG") {
		initial = "optional"
	}
	e.set("limits.initial", initial, "FORCE_START_WITHOUT_INITIAL_CONFIG")
	if e.isTrue("LIMIT_RESPONSE_HEADERS_ENABLED") {
		e.set("headers.style", string(HeadersRateLimit), "LIMIT_RESPONSE_HEADERS_ENABLED")
	}
	if e.isTrue("USE_PROMETHEUS") {
		e.set("metrics.names", string(NamesEnvoyproxy), "USE_PROMETHEUS")
	}
	e.set("limits.ready_when_empty", strconv.FormatBool(!e.isTrue("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED")), "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED")
}

// files reads where the limits files are.
func (e *envoyEnvironment) files() {
	above := filepath.Join(e.values["RUNTIME_ROOT"], e.values["RUNTIME_SUBDIRECTORY"])
	e.set("limits.path", filepath.Join(above, e.values["RUNTIME_APPDIRECTORY"]), "RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY")
	if e.isTrue("RUNTIME_WATCH_ROOT") {
		e.refuseNeighbours(above)
	}
}

// refuseNeighbours refuses files beside the limits folder that the service would load
// too: it joins a path with dots, and takes all files whose names begin with the folder's
// name and a dot.
func (e *envoyEnvironment) refuseNeighbours(above string) {
	app := e.values["RUNTIME_APPDIRECTORY"]
	entries, err := os.ReadDir(above)
	if err != nil || app == "" {
		return // reported when the limits are loaded
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), app+".") {
			e.failf("variable RUNTIME_APPDIRECTORY: found %s beside the folder %s, which envoyproxy/ratelimit loads too and a daemon does not; allowed: limits in the folder",
				filepath.Join(above, entry.Name()), app)
		}
	}
}

// tracing reads where spans go and what they are called. Of the OTEL_* variables, that
// service ignores those whose settings are set here.
func (e *envoyEnvironment) tracing() {
	if !e.isTrue("TRACING_ENABLED") {
		return
	}
	e.set("tracing.propagators", "tracecontext,b3,b3multi,baggage")
	// In that service a ratio above 1 is 1, and one below 0 is 0.
	if ratio, err := strconv.ParseFloat(e.values["TRACING_SAMPLING_RATE"], 64); err == nil && !math.IsNaN(ratio) {
		e.set("tracing.sample_ratio", strconv.FormatFloat(min(max(ratio, 0), 1), 'g', -1, 64), "TRACING_SAMPLING_RATE")
	} else if err == nil {
		e.refuseVariable("TRACING_SAMPLING_RATE", "a number")
	}
}

func (e *envoyEnvironment) store() {
	switch backend := e.values["BACKEND_TYPE"]; {
	case e.wantsRedis():
		e.set("store", "redis", "BACKEND_TYPE")
		e.redis()
	case backend == "memory":
		e.set("store", "memory", "BACKEND_TYPE")
	default:
		e.refuseVariable("BACKEND_TYPE", "redis, or memory for limits of this daemon alone")
	}
}

func (e *envoyEnvironment) wantsRedis() bool {
	return e.values["BACKEND_TYPE"] == "redis" || e.values["BACKEND_TYPE"] == ""
}

func (e *envoyEnvironment) prefixesKeys() bool {
	return e.wantsRedis() && e.values["CACHE_KEY_PREFIX"] != ""
}

// reportIgnored gives one warning about all variables that are not followed.
func (e *envoyEnvironment) reportIgnored() {
	var ignored []string
	for _, v := range e.variables {
		if v.matters != nil && e.given[v.name] && !e.unread[v.name] && v.matters(e) {
			ignored = append(ignored, fmt.Sprintf("%s (%s)", v.name, v.remark))
		}
	}
	if len(ignored) > 0 {
		e.warnf("variables of envoyproxy/ratelimit that are not followed to the letter: %s", strings.Join(ignored, "; "))
	}
}

// reportOwn gives one warning about all variables of the daemon's own settings. Anyone who
// assumes that the one for the tokens file is read would look for a wrong token.
func (e *envoyEnvironment) reportOwn(environ []string) {
	var unread []string
	for i := range e.table {
		d := &e.table[i]
		if slices.ContainsFunc(environ, func(assignment string) bool { return strings.HasPrefix(assignment, d.variable()+"=") }) {
			unread = append(unread, fmt.Sprintf("%s (use --%s)", d.variable(), d.flag()))
		}
	}
	if len(unread) > 0 {
		e.warnf("variables of the daemon's own settings that are not read by the name of envoyproxy/ratelimit: %s", strings.Join(unread, "; "))
	}
}

func always(*envoyEnvironment) bool { return true }

func whenIs(name, value string) func(*envoyEnvironment) bool {
	return func(e *envoyEnvironment) bool { return e.values[name] == value }
}

func whenTrue(name string) func(*envoyEnvironment) bool {
	return func(e *envoyEnvironment) bool { return e.isTrue(name) }
}

// wantsDotfiles reports whether files whose names begin with a dot are wanted. It is
// asked only if the variable is given: the default is not a decision by anyone.
func (e *envoyEnvironment) wantsDotfiles() bool { return !e.isTrue("RUNTIME_IGNOREDOTFILES") }

// wantsTags reports whether statistics with labels, which are not sent, are wanted.
func (e *envoyEnvironment) wantsTags() bool {
	return e.values["EXTRA_TAGS"] != "" && !e.isTrue("DISABLE_STATS") && !e.wantsStatsd()
}

func (e *envoyEnvironment) wantsCalendarMonths() bool {
	return e.isTrue("USE_CALENDAR_MONTH_RATE_LIMIT")
}

func (e *envoyEnvironment) wantsMapper() bool {
	return e.values["PROMETHEUS_MAPPER_YAML"] != "" && e.isTrue("USE_PROMETHEUS")
}

func (e *envoyEnvironment) wantsMilliseconds() bool {
	return e.isTrue("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS") && e.isTrue("USE_PROMETHEUS")
}
