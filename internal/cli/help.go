package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
)

// helpColumns is the width at which texts about a command's own flags are wrapped.
const helpColumns = 80

// printUsage prints the usage of a command: cobra's, with settings by section.
func printUsage(cmd *cobra.Command) error {
	var u strings.Builder
	use := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		use = cmd.CommandPath() + " [command]"
	}
	fmt.Fprintf(&u, "Usage:\n  %s\n", use)
	if cmd.HasExample() {
		fmt.Fprintf(&u, "\nExamples:\n%s\n", strings.ReplaceAll(strings.TrimRight(cmd.Example, "\n"), "ratelimitd ", cmd.Root().Name()+" "))
	}
	writeCommands(&u, cmd)
	writeFlags(&u, cmd.LocalFlags())
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&u, "\n%s [command] --help says more of a command.\n", cmd.CommandPath())
	}
	_, err := io.WriteString(cmd.OutOrStdout(), u.String())
	return err
}

// writeCommands writes the commands below a command, by group.
func writeCommands(u *strings.Builder, cmd *cobra.Command) {
	others := "Others:"
	if len(cmd.Groups()) == 0 {
		others = "Commands:"
	}
	for _, group := range append(slices.Clone(cmd.Groups()), &cobra.Group{Title: others}) {
		title := "\n" + group.Title + "\n"
		for _, c := range cmd.Commands() {
			if c.GroupID == group.ID && (c.IsAvailableCommand() || c.Name() == "help") {
				fmt.Fprintf(u, "%s  %-*s %s\n", title, cmd.NamePadding(), c.Name(), c.Short)
				title = ""
			}
		}
	}
}

// writeFlags writes flags: a command's own, then settings by section.
func writeFlags(u *strings.Builder, fs *pflag.FlagSet) {
	sections := make(map[string]*pflag.FlagSet)
	fs.VisitAll(func(f *pflag.Flag) {
		section := settings.SectionOf(f)
		if sections[section] == nil {
			sections[section] = pflag.NewFlagSet(section, pflag.ContinueOnError)
		}
		sections[section].AddFlag(f)
	})
	write := func(title, section string, columns int) {
		if flags := sections[section]; flags != nil && flags.HasAvailableFlags() {
			fmt.Fprintf(u, "\n%s:\n%s", title, flags.FlagUsagesWrapped(columns))
		}
	}
	write("Flags", "", helpColumns)
	if len(sections) > 1 {
		fmt.Fprint(u, "\nSettings, with defaults in brackets. More: deploy/ratelimitd.yaml,\ndocs/configuration.md\n")
	}
	for _, section := range settings.Sections() {
		write(section, section, 0) // a line each, for grep
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
