package settings

import (
	"slices"
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
		flag := fs.VarPF(&settingFlag{word: d.word, list: d.list, section: d.title}, d.flag(), "", usage)
		if d.word == boolKind.word {
			flag.NoOptDefVal = "true"
		}
	}
}

// Sections returns the titles under which help shows settings, in order.
func Sections() (titles []string) {
	for _, d := range allSettings() {
		if !slices.Contains(titles, d.title) {
			titles = append(titles, d.title)
		}
	}
	return titles
}

// SectionOf returns the title for a flag of BindFlags, and "" for any other.
func SectionOf(flag *pflag.Flag) string {
	if f, ours := flag.Value.(*settingFlag); ours {
		return f.section
	}
	return ""
}

// settingFlag is the value of a flag as given.
type settingFlag struct {
	text, word, section string
	list                bool // given twice, a list grows
	set                 bool
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
			l.set(d, flag.text, "flag --"+d.flag())
		}
	}
}

// flag returns the name of the setting's flag, without dashes.
func (d *setting) flag() string { return strings.NewReplacer(".", "-", "_", "-").Replace(d.name) }
