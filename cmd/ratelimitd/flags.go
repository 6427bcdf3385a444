package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
)

// flagError words the error of a flag that cannot be read: which flag, what was
// found and what is allowed.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var lacking *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	var syntax *pflag.InvalidSyntaxError
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
	case errors.As(err, &invalid):
		f, allowed := invalid.GetFlag(), "a value of the type "+invalid.GetFlag().Value.Type()
		if a, ok := f.Value.(interface{ allowed() string }); ok {
			allowed = a.allowed()
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

// adviseOn says which flag was probably meant by a name that the command does not
// have.
func adviseOn(cmd *cobra.Command, name string) string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := settings.NearestName(name, names); near != "" {
		return fmt.Sprintf("did you mean --%s?", near)
	}
	for _, other := range cmd.Root().Commands() {
		if other.Flags().Lookup(name) != nil {
			return fmt.Sprintf("%s has it", other.CommandPath())
		}
	}
	return fmt.Sprintf("%s --help lists those that it has", cmd.CommandPath())
}

// needsFlag is the error of a command line without a flag that it needs.
func needsFlag(cmd *cobra.Command, name string) error {
	return fmt.Errorf("found no --%s; %s needs it. Usage: %s", name, cmd.CommandPath(), cmd.UseLine())
}

// What cobra says of a command line, which this program says in words of its own.
var (
	lackingFlags   = regexp.MustCompile(`^required flag\(s\) "([^"]+)".* not set$`)
	excludingFlags = regexp.MustCompile(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`)
	unknownCommand = regexp.MustCompile(`(?s)^unknown command (".*") for "[^"]*"`)
	manyArguments  = regexp.MustCompile(`^accepts at most (\d+) arg\(s\), received (\d+)$`)
)

// ownWords words what cobra found wrong in a command line as everything else: what
// was found and what is allowed.
func ownWords(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if m := lackingFlags.FindStringSubmatch(text); m != nil {
		return needsFlag(cmd, m[1])
	}
	if m := excludingFlags.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("found --%s; allowed: one of them", strings.Join(strings.Fields(m[1]), " beside --"))
	}
	if m := unknownCommand.FindStringSubmatch(text); m != nil {
		if name, wrong := strconv.Unquote(m[1]); wrong == nil {
			return noCommand(cmd, name)
		}
	}
	if m := manyArguments.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("found %s arguments; allowed: at most %s. Usage: %s", m[2], m[1], cmd.UseLine())
	}
	return err
}

// noCommand is the error of a name that no command below cmd has. It says which have one
// like it.
func noCommand(cmd *cobra.Command, name string) error {
	advice := cmd.CommandPath() + " --help lists them"
	if near := nearCommands(cmd, name); len(near) > 0 {
		advice = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return fmt.Errorf("unknown command %q; %s", name, advice)
}

// maxNear is how many names are proposed in the place of a wrong one.
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
		if one := settings.NearestName(name, names); one != "" {
			near = []string{one}
		}
	}
	return near[:min(maxNear, len(near))]
}

// noArguments refuses arguments that are not flags. It says what was probably meant.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	meant := ""
	var flags []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
	if near := settings.NearestName(args[0], flags); near != "" {
		meant = "; did you mean --" + near + "?"
	} else if near := nearCommands(cmd.Root(), args[0]); len(near) > 0 {
		meant = "; did you mean " + cmd.Root().Name() + " " + near[0] + "?"
	}
	return fmt.Errorf("found the argument %q; allowed: flags alone. Usage: %s%s", args[0], cmd.UseLine(), meant)
}

// numberFlag is a flag's whole number.
type numberFlag struct {
	to     *int64
	lo, hi int64
}

func (f numberFlag) String() string  { return strconv.FormatInt(*f.to, 10) }
func (f numberFlag) Type() string    { return "number" }
func (f numberFlag) allowed() string { return fmt.Sprintf("a whole number from %d to %d", f.lo, f.hi) }

func (f numberFlag) Set(text string) error {
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil || n < f.lo || n > f.hi {
		return errors.New("not " + f.allowed())
	}
	*f.to = n
	return nil
}

// waitFlag is a flag's duration, for which a command waits for an answer.
type waitFlag struct{ to *time.Duration }

const (
	shortestWait = time.Millisecond
	longestWait  = 24 * time.Hour
)

func (f waitFlag) String() string  { return f.to.String() }
func (f waitFlag) Type() string    { return "duration" }
func (f waitFlag) allowed() string { return "1ms to 24h with a unit, such as 500ms or 2s" }

func (f waitFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < shortestWait || d > longestWait {
		return errors.New("not " + f.allowed())
	}
	*f.to = d
	return nil
}

// maxWaitFlag is how long a change may wait for the daemons; nil if it does not say so.
type maxWaitFlag struct{ to **durationpb.Duration }

func (f maxWaitFlag) String() string  { return "" }
func (f maxWaitFlag) Type() string    { return "duration" }
func (f maxWaitFlag) allowed() string { return "0s to 10s" }

func (f maxWaitFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > 10*time.Second {
		return errors.New("not " + f.allowed())
	}
	*f.to = durationpb.New(d)
	return nil
}

// wordFlag is a flag's word, one of a few.
type wordFlag struct {
	to    *string
	words []string
}

func (f wordFlag) String() string  { return *f.to }
func (f wordFlag) Type() string    { return "word" }
func (f wordFlag) allowed() string { return strings.Join(f.words, ", ") }

func (f wordFlag) Set(text string) error {
	if !slices.Contains(f.words, text) {
		return errors.New("not one of " + f.allowed())
	}
	*f.to = text
	return nil
}
