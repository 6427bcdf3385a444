package settings

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// Load returns the settings in force: defaults, overridden by the YAML file (none if the
// name is empty), then by the environment, then by the given flags of fs that BindFlags
// defined. fs may be nil.
//
// Each value is checked, even if another source overrides it. The error joins all errors,
// one per line. Each begins with the source: the file and the setting, variable NAME or
// flag --name. No secret appears in it, nor in the warnings.
//
// A variable set to nothing counts: RATELIMITD_HTTP_ADDRESS= is off. A null in the file
// is an error for a setting, since it might mean empty or the default. A section may be
// null, as it is once all its settings are commented out.
func Load(fs *pflag.FlagSet, environ []string, file string) (Settings, []string, error) {
	l := newLoader()
	l.addFile(file)
	l.addEnvironment(environ)
	return l.load(fs)
}

// TokensFile returns admin.tokens_file of the settings that Load would return, even if
// the file does not exist yet. An error means that the settings cannot be read.
func TokensFile(environ []string, file string) (string, error) {
	l := newLoader()
	l.addFile(file)
	l.addEnvironment(environ)
	return l.decode().Admin.TokensFile, errors.Join(l.errs...)
}

// load adds the flags, and returns the settings and what is wrong.
func (l *loader) load(fs *pflag.FlagSet) (Settings, []string, error) {
	l.addFlags(fs)
	s := l.decode()
	l.resolvePprof(&s)
	l.checkTogether(&s)
	l.checkFiles(&s)
	if err := errors.Join(l.errs...); err != nil {
		return Settings{}, l.warnings, err
	}
	return s, l.warnings, nil
}

// loader gathers the values of all sources, and errors and warnings about them.
type loader struct {
	// all has the values, each of the type of its field. A source that goes before others
	// is added after them.
	all      *viper.Viper
	table    []setting
	where    map[string]string // source of the effective value; a default is absent
	bad      map[string]bool   // settings with a value that was refused
	file     string            // of settings; empty for none
	warnings []string
	errs     []error
	// likeEnvoy is set if the settings come from the environment of envoyproxy/ratelimit.
	// Some errors are then warnings, since they are usual there.
	likeEnvoy bool
}

func newLoader() *loader {
	l := &loader{all: viper.New(), table: allSettings(), bad: make(map[string]bool), where: make(map[string]string)}
	for _, d := range l.table {
		value, ok := d.parse(d.byDefault)
		if !ok {
			panic("settings: the default of " + d.name + " is refused")
		}
		l.all.SetDefault(d.name, value)
	}
	return l
}

// decode returns the values in force.
func (l *loader) decode() (s Settings) {
	err := l.all.UnmarshalExact(&s, func(c *mapstructure.DecoderConfig) {
		c.MatchName = func(part, field string) bool { return part == fieldName(field) }
	})
	if err != nil {
		panic("settings: the table does not fit its fields: " + err.Error())
	}
	return s
}

func (l *loader) lookup(name string) *setting {
	if i := slices.IndexFunc(l.table, func(d setting) bool { return d.name == name }); i >= 0 {
		return &l.table[i]
	}
	return nil
}

func (l *loader) failf(format string, args ...any) {
	l.errs = append(l.errs, fmt.Errorf(format, args...))
}

func (l *loader) warnf(format string, args ...any) {
	l.warnings = append(l.warnings, fmt.Sprintf(format, args...))
}

// refuse reports a value of d from a source. The name of a file does not name the setting.
func (l *loader) refuse(where string, d *setting, found string) {
	l.bad[d.name] = true
	if where == l.file {
		where += ": " + d.name
	}
	l.failf("%s: found %s; allowed: %s", where, found, d.allowed)
}

// set gives a setting the value of a text, if that is allowed. where is its source, empty
// for a default.
func (l *loader) set(d *setting, text, where string) {
	value, ok := d.parse(text)
	if !ok {
		found := redacted
		if !d.secret {
			found = foundText(text)
		}
		l.refuse(where, d, found)
		return
	}
	l.all.Set(d.name, value)
	delete(l.where, d.name)
	if where != "" {
		l.where[d.name] = where
	}
}

// addEnvironment adds the variables of the environment. viper itself would read those of
// the process only.
func (l *loader) addEnvironment(environ []string) {
	byVariable := make(map[string]*setting)
	for i := range l.table {
		byVariable[l.table[i].variable()] = &l.table[i]
	}
	// The commands read these two, which are not settings.
	others := []string{variablePrefix + "CONFIG", variablePrefix + "TOKEN"}
	seen := make(map[string]bool)
	for _, assignment := range environ {
		name, text, _ := strings.Cut(assignment, "=")
		// Of two with the same name the first counts, as in os.Getenv.
		if !strings.HasPrefix(name, variablePrefix) || seen[name] {
			continue
		}
		seen[name] = true
		if d := byVariable[name]; d != nil {
			l.set(d, text, "variable "+name)
		} else if !slices.Contains(others, name) && !fromKubernetes(name) {
			known := slices.AppendSeq(others, maps.Keys(byVariable))
			l.warnf("variable %s: no setting has this name%s", shownName(name), didYouMean(name, known))
		}
	}
}

// checkFiles reads each file that a setting names and that will be used, so that a
// missing one is reported with the other errors and not only when it is needed.
func (l *loader) checkFiles(s *Settings) {
	redis := s.Store == StoreRedis
	used := map[string]bool{
		"limits.xds.tls.": s.Limits.Source == SourceXDS && s.Limits.XDS.TLS.Enabled, "redis.password_file": redis, "redis.tls.": redis && s.Redis.TLS.Enabled,
		"grpc.tls.": true, "http.tls.": s.HTTP.Address != "", "api.callers_file": true, "auth.path": true, "admin.": s.Admin.Address != "",
	}
	for _, d := range l.table {
		for prefix, isUsed := range used {
			path, _ := d.valueIn(s).(string)
			if !isUsed || !strings.HasPrefix(d.name, prefix) || d.word != "path" || path == "" {
				continue
			}
			if _, err := os.ReadFile(path); err != nil {
				l.failf("%s: %s: found a file that can't be read: %w", l.whereFirst(d.name), d.name, err)
			}
		}
	}
}
