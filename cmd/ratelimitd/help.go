package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
)

// usageAt returns what shows the usage of a command in lines of at most width characters.
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
			for _, line := range strings.Split(strings.TrimRight(cmd.Example, "\n"), "\n") {
				u.example(line)
			}
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

// ownHelpCommand has help refuse the names of commands that there are not.
func ownHelpCommand(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		panic(err) // it was made above
	}
	help.Run = nil
	help.RunE = func(cmd *cobra.Command, args []string) error {
		about, rest, err := root.Find(args)
		switch {
		case err != nil:
			return ownWords(root, err)
		case len(rest) > 0 && about.HasAvailableSubCommands():
			return noCommand(about, rest[0])
		case len(rest) > 0:
			return noArguments(about, rest)
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

// hang writes a text behind head, and what does not fit behind further.
func (u *usage) hang(head, text, further string) {
	for _, line := range wrapped(text, u.width-max(len(head), len(further))) {
		u.text.WriteString(head + line + "\n")
		head = further
	}
}

// example writes a command. One that does not fit goes on after a backslash, which a
// shell reads so.
func (u *usage) example(line string) {
	command := strings.TrimLeft(line, " ")
	indent := line[:len(line)-len(command)]
	if len(line) <= u.width {
		u.text.WriteString(line + "\n")
		return
	}
	part := indent
	for _, word := range exampleWords(command) {
		if len(part)+len(word)+len(" \\") > u.width && strings.TrimSpace(part) != "" {
			u.text.WriteString(part + "\\\n")
			part = indent + "  "
		}
		part += word + " "
	}
	u.text.WriteString(strings.TrimRight(part, " ") + "\n")
}

// exampleWords splits a command where it may be broken: not between quotes, nor between a
// flag and its value.
func exampleWords(command string) []string {
	var words []string
	isOpen := false
	for _, word := range strings.Split(command, " ") {
		last := len(words) - 1
		if isOpen || last >= 0 && strings.HasPrefix(words[last], "--") && !strings.Contains(words[last], " ") && !strings.HasPrefix(word, "--") {
			words[last] += " " + word
		} else {
			words = append(words, word)
		}
		if strings.Count(word, `"`)%2 == 1 {
			isOpen = !isOpen
		}
	}
	return words
}

// commands writes the commands below, in their groups.
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

// flags writes flags: a command's own, and then settings by their sections.
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
	// settingColumn is where the text about a setting begins, unless its flag is longer.
	settingColumn = 34
	// maxHead is how long a flag may be that has its text beside it.
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

// flagHead is a flag, and what its value is.
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
