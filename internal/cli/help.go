package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/terminal"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
)

// helpColumns is the width of help if nothing specifies one.
const helpColumns = 80

// usageAt returns a function that shows the usage of a command in lines of at most width
// characters.
func usageAt(width int) func(*cobra.Command) error {
	return func(cmd *cobra.Command) error {
		u := usage{width: width}
		u.title("Usage")
		use := cmd.UseLine()
		if cmd.HasAvailableSubCommands() {
			use = cmd.CommandPath() + " [command]"
		}
		u.hang("  ", use, "      ")
		if cmd.HasExample() {
			u.title("Examples")
			u.text.WriteString(strings.TrimRight(cmd.Example, "\n") + "\n")
		}
		u.commands(cmd)
		u.flags(cmd.LocalFlags(), "Flags")
		u.flags(cmd.InheritedFlags(), "Global flags")
		if cmd.HasAvailableSubCommands() {
			u.text.WriteString("\n")
			u.hang("", fmt.Sprintf("%s [command] --help says more of a command.", cmd.CommandPath()), "")
		}
		_, err := io.WriteString(cmd.OutOrStdout(), u.text.String())
		return err
	}
}

// ownHelpCommand makes help refuse the names of unknown commands.
func ownHelpCommand(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		panic(err) // created above
	}
	help.Run = nil
	help.RunE = func(cmd *cobra.Command, args []string) error {
		about, rest, err := root.Find(args)
		switch {
		case err != nil:
			return cmdline.OwnWords(root, err)
		case len(rest) > 0 && about.HasAvailableSubCommands():
			return cmdline.NoCommand(about, rest[0])
		case len(rest) > 0:
			return cmdline.NoArguments(about, rest)
		}
		about.InitDefaultHelpFlag()
		return about.Help()
	}
}

// usage is the text of a command's usage.
type usage struct {
	width int
	text  strings.Builder
}

func (u *usage) title(text string) {
	if u.text.Len() > 0 {
		u.text.WriteString("\n")
	}
	u.text.WriteString(text + ":\n")
}

// hang writes a text after head, and what does not fit after further.
func (u *usage) hang(head, text, further string) {
	for _, line := range terminal.Wrapped(text, u.width-max(len(head), len(further))) {
		u.text.WriteString(head + line + "\n")
		head = further
	}
}

// commands writes the commands below, by group.
func (u *usage) commands(cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	others := "Others"
	if len(cmd.Groups()) == 0 {
		others = "Commands"
	}
	for _, group := range append(slices.Clone(cmd.Groups()), &cobra.Group{Title: others + ":"}) {
		isFirst := true
		for _, c := range cmd.Commands() {
			if c.GroupID != group.ID || !c.IsAvailableCommand() && c.Name() != "help" {
				continue
			}
			if isFirst {
				u.title(strings.TrimSuffix(group.Title, ":"))
				isFirst = false
			}
			u.hang(fmt.Sprintf("  %-*s ", cmd.NamePadding(), c.Name()), c.Short, strings.Repeat(" ", cmd.NamePadding()+3))
		}
	}
}

// flags writes flags: a command's own, then settings by section.
func (u *usage) flags(fs *pflag.FlagSet, title string) {
	bySection := make(map[string][]*pflag.Flag)
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			bySection[settings.SectionOf(f)] = append(bySection[settings.SectionOf(f)], f)
		}
	})
	if own := bySection[""]; len(own) > 0 {
		u.title(title)
		u.ownFlags(own)
	}
	if len(bySection) > 1 {
		u.text.WriteString("\n")
		u.hang("", "Settings, with defaults in brackets. More: deploy/ratelimitd.yaml, docs/configuration.md", "")
	}
	for _, section := range settings.Sections() {
		if len(bySection[section]) == 0 {
			continue
		}
		u.title(section)
		for _, f := range bySection[section] {
			head := fmt.Sprintf("%-*s", settingColumn-2, flagHead(f))
			if len(head)+len(f.Usage)+2 <= u.width {
				head += " "
			}
			u.hang(head+" ", f.Usage, strings.Repeat(" ", settingColumn))
		}
	}
}

const (
	// settingColumn is the column where the text about a setting begins, unless its flag
	// is longer.
	settingColumn = 34
	// maxHead is the maximum length of a flag with its text beside it.
	maxHead = 28
)

func (u *usage) ownFlags(flags []*pflag.Flag) {
	column := 0
	for _, f := range flags {
		if n := len(flagHead(f)); n <= maxHead {
			column = max(column, n+2)
		}
	}
	for _, f := range flags {
		head, further := flagHead(f), strings.Repeat(" ", column)
		_, text := pflag.UnquoteUsage(f)
		if !slices.Contains([]string{"", "false", "0", "[]"}, f.DefValue) {
			text += " (default " + f.DefValue + ")"
		}
		if len(head)+2 > column {
			u.text.WriteString(head + "\n")
			head = ""
		}
		u.hang(fmt.Sprintf("%-*s", column, head), text, further)
	}
}

// flagHead returns a flag with the kind of its value.
func flagHead(f *pflag.Flag) string {
	head := "  "
	if f.Shorthand != "" {
		head += "-" + f.Shorthand + ", "
	}
	head += "--" + f.Name
	if kind, _ := pflag.UnquoteUsage(f); kind != "" && f.NoOptDefVal == "" {
		head += " " + kind
	}
	return head
}
