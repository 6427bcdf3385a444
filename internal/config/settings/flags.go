package settings

import (
	"strings"

	"github.com/spf13/pflag"
)

// BindFlags defines a flag for each setting except secrets, since every user of the
// machine can read a command line.
//
// A flag accepts any text. Load checks it, so that a wrong flag is reported together with
// all other errors.
func BindFlags(fs *pflag.FlagSet) {
	for _, d := range allSettings() {
		if d.secret {
			continue
		}
		usage := d.help
		if d.byDefault != "" {
			usage += " [" + d.byDefault + "]"
		}
		flag := fs.VarPF(&settingFlag{word: d.word, list: d.list}, d.flag(), "", usage)
		flag.Annotations = map[string][]string{sectionOfFlag: {d.section()}}
		if d.word == boolKind.word {
			flag.NoOptDefVal = "true"
		}
	}
}

// Sections returns the titles under which help shows settings, in order.
func Sections() []string {
	titles := make([]string, len(sections))
	for i, s := range sections {
		titles[i] = s.title
	}
	return titles
}

// SectionOf returns the title for a flag of BindFlags, and "" for any other.
func SectionOf(flag *pflag.Flag) string {
	if titles := flag.Annotations[sectionOfFlag]; len(titles) == 1 {
		return titles[0]
	}
	return ""
}

const sectionOfFlag = "section of settings"

// sections are the titles of settings, and how the names below each begin. The longest
// matching beginning counts.
var sections = []struct {
	title  string
	begins []string
}{
	{"Limits", []string{"limits."}},
	{"Limits from an xDS server", []string{"limits.xds.", "limits.cache_path"}},
	{"Store", []string{"store", "memory."}},
	{"Redis", []string{"redis."}},
	{"While Redis does not answer", []string{"failure."}},
	{"Assignments", []string{"assignments."}},
	{"gRPC port", []string{"grpc."}},
	{"HTTP port", []string{"http."}},
	{"APIs", []string{"api.", "auth.", "headers."}},
	{"Admin port", []string{"admin."}},
	{"Metrics", []string{"metrics."}},
	{"Who had the most", []string{"top."}},
	{"Tracing", []string{"tracing."}},
	{"Log of decisions", []string{"decisions."}},
	{"The process", []string{""}},
}

// section returns the title of a setting.
func (d *setting) section() string {
	title, longest := "", -1
	for _, s := range sections {
		for _, begin := range s.begins {
			if strings.HasPrefix(d.name, begin) && len(begin) > longest {
				title, longest = s.title, len(begin)
			}
		}
	}
	return title
}

// settingFlag is the value of a flag as given.
type settingFlag struct {
	text string
	word string
	list bool // given twice, a list grows
	set  bool
}

func (f *settingFlag) String() string { return f.text }

func (f *settingFlag) Type() string { return f.word }

func (f *settingFlag) Set(text string) error {
	if f.list && f.set {
		text = f.text + "," + text
	}
	f.text, f.set = text, true
	return nil
}

// addFlags adds the flags that were given.
func (l *loader) addFlags(fs *pflag.FlagSet) {
	for i := range l.table {
		d := &l.table[i]
		if fs == nil || fs.Lookup(d.flag()) == nil {
			continue
		}
		// Not a command's own flag that happens to have the name.
		if flag, ours := fs.Lookup(d.flag()).Value.(*settingFlag); ours && flag.set {
			l.set(l.all, d, flag.text, "flag --"+d.flag())
		}
	}
}

// flag returns the name of the setting's flag, without dashes.
func (d *setting) flag() string { return strings.NewReplacer(".", "-", "_", "-").Replace(d.name) }
