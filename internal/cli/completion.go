package cli

import (
	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
)

// ownCompletionCommands changes cobra's: an unknown shell is an error.
func ownCompletionCommands(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	completion, _, err := root.Find([]string{"completion"})
	if err != nil {
		panic(err) // created above
	}
	completion.Args = cobra.ArbitraryArgs
	completion.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return cmdline.NoCommand(cmd, args[0])
		}
		return cmd.Help()
	}
	for _, shell := range completion.Commands() {
		shell.Args = cmdline.NoArguments
	}
}
