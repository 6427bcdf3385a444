package settings

import (
	"fmt"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// BindFlags defines a flag for each setting except secrets: every user of the
// machine can read a command line.
//
// A flag takes any text. Load checks it, so that a wrong flag is reported together
// with all other errors.
func BindFlags(fs *pflag.FlagSet) {
	for _, d := range allSettings() {
		if d.secret {
			continue
		}
		byDefault := d.byDefault
		if byDefault == "" {
			byDefault = "empty"
		}
		usage := fmt.Sprintf("%s: %s (default %s)", d.help, d.allowed, byDefault)
		flag := fs.VarPF(&settingFlag{word: d.word, list: d.form == listForm}, d.flag(), "", usage)
		if d.form == boolForm {
			flag.NoOptDefVal = "true"
		}
	}
}

// settingFlag is a flag's value as it was given.
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

// viperFlag gives a flag to viper as a text: by itself viper reads a bad integer
// as 0.
type viperFlag struct {
	*pflag.Flag
}

func (f viperFlag) HasChanged() bool { return f.Changed }

func (f viperFlag) Name() string { return f.Flag.Name }

func (f viperFlag) ValueString() string { return f.Value.String() }

func (f viperFlag) ValueType() string { return "text" }

func (l *settingsLoader) bindFlags(layers *viper.Viper, fs *pflag.FlagSet) error {
	if fs == nil {
		return nil
	}
	for i := range l.table {
		d := &l.table[i]
		flag := fs.Lookup(d.flag())
		if flag == nil || !flag.Changed {
			continue
		}
		if _, ours := flag.Value.(*settingFlag); !ours {
			continue // a command's own flag that happens to bear the name
		}
		if !l.accept("flag --"+flag.Name, d, flag.Value.String()) {
			continue
		}
		if err := layers.BindFlagValue(d.name, viperFlag{flag}); err != nil {
			return err
		}
	}
	return nil
}
