package settings

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// Load returns the settings in force: defaults, overridden by the YAML file (none if the
// name is empty), then by the environment, then by the given flags of fs that BindFlags
// defined. fs may be nil.
//
// Each value is checked, even if another source overrides it. The error joins all errors,
// one per line. Each begins with the place: file:line:column, variable NAME or flag
// --name. No secret appears in it, nor in the warnings.
//
// A variable set to nothing counts: RATELIMITD_HTTP_ADDRESS= is off. A null in the file
// is an error for a setting, since it might mean empty or the default. A section may be
// null, as it is once all its settings are commented out.
func Load(fs *pflag.FlagSet, environ []string, file string) (Settings, []string, error) {
	l := newSettingsLoader()
	return l.load(fs, l.fromFile(file), l.fromEnvironment(environ))
}

// TokensFile returns admin.tokens_file of the settings that Load would return, even if
// the file does not exist yet. An error means that the settings cannot be read.
func TokensFile(environ []string, file string) (string, error) {
	l := newSettingsLoader()
	s, err := l.layered(nil, l.fromFile(file), l.fromEnvironment(environ))
	if err != nil {
		return "", err
	}
	return s.Admin.TokensFile, errors.Join(l.errs...)
}

// load builds the settings from the layers, each overriding those before it, and from the
// flags.
func (l *settingsLoader) load(fs *pflag.FlagSet, layers ...map[string]any) (Settings, []string, error) {
	s, err := l.layered(fs, layers...)
	if err != nil {
		return Settings{}, nil, err
	}
	if l.good("admin.address", "admin.pprof") {
		l.resolvePprof(&s)
	}
	l.checkTogether(&s)
	l.checkFiles(&s)
	if err := errors.Join(l.errs...); err != nil {
		return Settings{}, l.warnings, err
	}
	return s, l.warnings, nil
}

// layered returns the values in force. Errors of single values go to l.errs; a returned
// error is a bug.
func (l *settingsLoader) layered(fs *pflag.FlagSet, layers ...map[string]any) (Settings, error) {
	all := viper.New()
	for _, d := range l.table {
		all.SetDefault(d.name, settingValue{text: d.byDefault})
	}
	// viper reads variables only from the process. Ours are an argument, so they become a
	// layer like the file.
	for _, layer := range layers {
		if err := all.MergeConfigMap(layer); err != nil {
			return Settings{}, fmt.Errorf("merge settings: %w", err)
		}
	}
	if err := l.bindFlags(all, fs); err != nil {
		return Settings{}, fmt.Errorf("bind flags: %w", err)
	}
	return l.resolve(all), nil
}

// settingValue is a value in a viper layer. A value from a flag is a plain string.
type settingValue struct {
	text  string
	where string // empty for a default
}

// settingsLoader builds the layers and gathers their errors and warnings.
type settingsLoader struct {
	table    []setting
	names    []string // of all settings
	sections []string // "redis", "redis.tls", ...
	bad      map[string]bool
	where    map[string]string // position of the effective value; a default is absent
	warnings []string
	errs     []error
	// likeEnvoy is set if the settings come from the environment of envoyproxy/ratelimit.
	// Some errors are then warnings, since they are usual there.
	likeEnvoy bool
}

func newSettingsLoader() *settingsLoader {
	l := &settingsLoader{table: allSettings(), bad: map[string]bool{}, where: map[string]string{}}
	for _, d := range l.table {
		l.names = append(l.names, d.name)
		for i, c := range d.name {
			if c == '.' && !slices.Contains(l.sections, d.name[:i]) {
				l.sections = append(l.sections, d.name[:i])
			}
		}
	}
	return l
}

func (l *settingsLoader) lookup(name string) *setting {
	if i := slices.Index(l.names, name); i >= 0 {
		return &l.table[i]
	}
	return nil
}

func (l *settingsLoader) failf(format string, args ...any) {
	l.errs = append(l.errs, fmt.Errorf(format, args...))
}

func (l *settingsLoader) warnf(format string, args ...any) {
	l.warnings = append(l.warnings, fmt.Sprintf(format, args...))
}

// refuse reports a value of d. where ends with the name of the setting, or of its flag or
// variable.
func (l *settingsLoader) refuse(where string, d *setting, found, hint string) {
	l.bad[d.name] = true
	if hint != "" {
		hint = "; write it " + hint
	}
	l.failf("%s: found %s; allowed: %s%s", where, found, d.allowed, hint)
}

// accept reports whether text is a value for d, and reports it as an error if not.
func (l *settingsLoader) accept(where string, d *setting, text string) bool {
	_, complaint := d.parse(text)
	if complaint != nil {
		l.refuse(where, d, complaint.found, complaint.hint)
	}
	return complaint == nil
}

// put stores a value under a dotted name, in maps as viper wants them.
func put(layer map[string]any, name string, value settingValue) {
	for {
		section, rest, nested := strings.Cut(name, ".")
		if !nested {
			layer[name] = value
			return
		}
		if layer[section] == nil {
			layer[section] = map[string]any{}
		}
		layer, name = layer[section].(map[string]any), rest
	}
}

func (l *settingsLoader) fromEnvironment(environ []string) map[string]any {
	layer := map[string]any{}
	byVariable := map[string]*setting{}
	variables := []string{"CONFIG", "TOKEN"} // without the prefix, which makes them all look alike
	for i := range l.table {
		d := &l.table[i]
		byVariable[d.variable()] = d
		variables = append(variables, strings.TrimPrefix(d.variable(), settingsPrefix))
	}
	seen := map[string]bool{}
	for _, assignment := range environ {
		name, text, _ := strings.Cut(assignment, "=")
		// Of two with the same name the first counts, as in os.Getenv.
		if !strings.HasPrefix(name, settingsPrefix) || seen[name] {
			continue
		}
		seen[name] = true
		d := byVariable[name]
		switch {
		case d != nil:
			where := "variable " + name
			if l.accept(where, d, text) {
				put(layer, d.name, settingValue{text: text, where: where})
			}
		case name == settingsPrefix+"CONFIG" || name == settingsPrefix+"TOKEN" || fromKubernetes(name, text):
			// The commands read these two, which are not settings.
		default:
			shown := unknownName(name)
			if nearest := NearestName(strings.TrimPrefix(shown, settingsPrefix), variables); nearest != "" {
				l.warnf("variable %s: no setting has this name; did you mean %s?", shown, settingsPrefix+nearest)
			} else {
				l.warnf("variable %s: no setting has this name", shown)
			}
		}
	}
	return layer
}

// resolve asks viper for each setting. Only good values are in its layers.
func (l *settingsLoader) resolve(layers *viper.Viper) Settings {
	var s Settings
	for i := range l.table {
		d := &l.table[i]
		var value settingValue
		switch v := layers.Get(d.name).(type) {
		case settingValue:
			value = v
		case string:
			value = settingValue{text: v, where: "flag --" + d.flag()}
		}
		assign, complaint := d.parse(value.text)
		if complaint != nil {
			l.refuse(value.where, d, complaint.found, complaint.hint)
			continue
		}
		assign(&s)
		if value.where != "" {
			l.where[d.name] = value.where
		}
	}
	return s
}

// good reports whether no value of these settings was refused. Only then can they be
// checked together.
func (l *settingsLoader) good(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return l.bad[name] })
}

// whereFirst returns the position of the first of these settings that is set.
func (l *settingsLoader) whereFirst(names ...string) string {
	for _, name := range names {
		if where := l.where[name]; where != "" {
			return where
		}
	}
	return names[0]
}

// checkFiles opens each file that a setting names and that will be used, so that a
// missing one is reported with the other errors and not only when it is needed.
func (l *settingsLoader) checkFiles(s *Settings) {
	xdsTLS := s.Limits.Source == SourceXDS && s.Limits.XDS.TLS.Enabled
	redis, redisTLS := s.Store == StoreRedis, s.Store == StoreRedis && s.Redis.TLS.Enabled
	httpOn, adminOn := s.HTTP.Address != "", s.Admin.Address != ""
	for _, f := range []struct {
		name, path string
		used       bool
	}{
		{"limits.xds.tls.ca", s.Limits.XDS.TLS.CA, xdsTLS},
		{"limits.xds.tls.cert", s.Limits.XDS.TLS.Cert, xdsTLS},
		{"limits.xds.tls.key", s.Limits.XDS.TLS.Key, xdsTLS},
		{"redis.password_file", s.Redis.PasswordFile, redis},
		{"redis.tls.ca", s.Redis.TLS.CA, redisTLS},
		{"redis.tls.cert", s.Redis.TLS.Cert, redisTLS},
		{"redis.tls.key", s.Redis.TLS.Key, redisTLS},
		{"grpc.tls.cert", s.GRPC.TLS.Cert, true},
		{"grpc.tls.key", s.GRPC.TLS.Key, true},
		{"grpc.tls.client_ca", s.GRPC.TLS.ClientCA, true},
		{"http.tls.cert", s.HTTP.TLS.Cert, httpOn},
		{"http.tls.key", s.HTTP.TLS.Key, httpOn},
		{"http.tls.client_ca", s.HTTP.TLS.ClientCA, httpOn},
		{"api.callers_file", s.API.CallersFile, true},
		{"auth.path", s.Auth.Path, true},
		{"admin.tokens_file", s.Admin.TokensFile, adminOn},
		{"admin.tls.cert", s.Admin.TLS.Cert, adminOn},
		{"admin.tls.key", s.Admin.TLS.Key, adminOn},
		{"admin.tls.client_ca", s.Admin.TLS.ClientCA, adminOn},
	} {
		if f.path == "" || !f.used {
			continue
		}
		if err := readable(f.path); err != nil {
			l.failf("%s: %s: found a file that can't be read: %w", l.whereFirst(f.name), f.name, err)
		}
	}
}

func readable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%s is a folder", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}
