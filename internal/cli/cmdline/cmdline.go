// Package cmdline contains what command lines have in common: values of flags, exit codes,
// lines of JSON, and what is wrong with a command line: what was found, what is allowed, and what was
// probably meant. It imports the settings, for similar names.
package cmdline

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// FlagError phrases the error of a flag that cannot be read: which flag, what was found
// and what is allowed.
func FlagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var lacking *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	var syntax *pflag.InvalidSyntaxError
	var own ValueError
	switch {
	case errors.As(err, &unknown):
		shown := "--" + unknown.GetSpecifiedName()
		if short := unknown.GetSpecifiedShortnames(); short != "" {
			shown, _, _ = strings.Cut("-"+short, "=")
		}
		return fmt.Errorf("flag %s: %s has no such flag; %s", shown, cmd.CommandPath(), adviseOn(cmd, strings.TrimLeft(shown, "-")))
	case errors.As(err, &lacking):
		f := lacking.GetFlag()
		return fmt.Errorf("flag --%s: found no value; allowed: --%s and a value (%s)", f.Name, f.Name, f.Value.Type())
	case errors.As(err, &invalid) && errors.As(err, &own):
		return fmt.Errorf("flag --%s: %w", invalid.GetFlag().Name, own.Err)
	case errors.As(err, &invalid):
		f, allowed := invalid.GetFlag(), "a value of the type "+invalid.GetFlag().Value.Type()
		if a, ok := f.Value.(interface{ Allowed() string }); ok {
			allowed = a.Allowed()
		} else if f.Value.Type() == "bool" {
			allowed = "true or false"
		}
		return fmt.Errorf("flag --%s: found %q; allowed: %s", f.Name, invalid.GetValue(), allowed)
	case errors.As(err, &syntax):
		found, _, _ := strings.Cut(syntax.GetSpecifiedFlag(), "=")
		return fmt.Errorf("found the flag %q; allowed: --NAME, --NAME VALUE or --NAME=VALUE", found)
	}
	return err
}

// adviseOn says which flag was probably meant by a name that the command does not have.
func adviseOn(cmd *cobra.Command, name string) string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := yamlfile.Nearest(name, names); near != "" {
		return fmt.Sprintf("did you mean --%s?", near)
	}
	if i := slices.IndexFunc(names, func(flag string) bool { return strings.HasPrefix(flag, name+"-") }); i >= 0 {
		return fmt.Sprintf("did you mean --%s?", names[i])
	}
	if slices.Contains(strings.FieldsFunc(cmd.Use, isNoName), strings.ToUpper(name)) {
		return "it is an argument. Usage: " + cmd.UseLine()
	}
	for _, other := range cmd.Root().Commands() {
		if other.Flags().Lookup(name) != nil {
			return fmt.Sprintf("%s has it", other.CommandPath())
		}
	}
	return fmt.Sprintf("%s --help lists those that it has", cmd.CommandPath())
}

// isNoName reports whether a character of a usage is in no name of an argument.
func isNoName(c rune) bool { return c != '-' && (c < 'A' || c > 'Z') }

// AtLeastOne refuses a command line without arguments, and says what they are.
func AtLeastOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("found no argument; allowed: %s. Usage: %s", what, cmd.UseLine())
		}
		return nil
	}
}

// NeedsFlag is the error of a command line that lacks a required flag.
func NeedsFlag(cmd *cobra.Command, name string) error {
	return fmt.Errorf("found no --%s; %s needs it. Usage: %s", name, cmd.CommandPath(), cmd.UseLine())
}

// Messages of cobra about a command line, which this program phrases itself.
var (
	lackingFlags   = regexp.MustCompile(`^required flag\(s\) "([^"]+)".* not set$`)
	excludingFlags = regexp.MustCompile(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`)
	unknownCommand = regexp.MustCompile(`(?s)^unknown command (".*") for "[^"]*"`)
	manyArguments  = regexp.MustCompile(`^accepts at most (\d+) arg\(s\), received (\d+)$`)
)

// OwnWords phrases what cobra found wrong in a command line like all other errors: what
// was found and what is allowed.
func OwnWords(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if m := lackingFlags.FindStringSubmatch(text); m != nil {
		return NeedsFlag(cmd, m[1])
	}
	if m := excludingFlags.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("found --%s; allowed: one of them", strings.Join(strings.Fields(m[1]), " beside --"))
	}
	if m := unknownCommand.FindStringSubmatch(text); m != nil {
		if name, wrong := strconv.Unquote(m[1]); wrong == nil {
			return NoCommand(cmd, name)
		}
	}
	if m := manyArguments.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("found %s arguments; allowed: at most %s. Usage: %s", m[2], m[1], cmd.UseLine())
	}
	return err
}

// NoCommand is the error of a name that no command below cmd has. It says which ones have
// a similar one.
func NoCommand(cmd *cobra.Command, name string) error {
	advice := cmd.CommandPath() + " --help lists them"
	if near := nearCommands(cmd, name); len(near) > 0 {
		advice = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return fmt.Errorf("unknown command %q; %s", name, advice)
}

// maxNear is how many names are suggested in place of a wrong one.
const maxNear = 3

// nearCommands returns the commands below cmd that a name was most likely meant to be.
func nearCommands(cmd *cobra.Command, name string) []string {
	cmd.SuggestionsMinimumDistance = 2
	near := cmd.SuggestionsFor(name)
	slices.Sort(near)
	if len(near) == 0 {
		var names []string
		for _, c := range cmd.Commands() {
			names = append(names, c.Name())
		}
		if one := yamlfile.Nearest(name, names); one != "" {
			near = []string{one}
		}
	}
	return near[:min(maxNear, len(near))]
}

// NoArguments refuses arguments that are not flags. It says what was probably meant.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	meant := ""
	var flags []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
	if near := yamlfile.Nearest(args[0], flags); near != "" {
		meant = "; did you mean --" + near + "?"
	} else if near := nearCommands(cmd.Root(), args[0]); len(near) > 0 {
		meant = "; did you mean " + cmd.Root().Name() + " " + near[0] + "?"
	}
	return fmt.Errorf("found the argument %q; allowed: flags alone. Usage: %s%s", args[0], cmd.UseLine(), meant)
}
