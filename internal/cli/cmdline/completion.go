package cmdline

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Completion returns the possible completions at a place, given the command line so far.
type Completion = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective)

// Complete adds completion of the values of a flag. The command has the flag, and no
// completion for it yet.
func Complete(cmd *cobra.Command, flag string, with Completion) {
	if err := cmd.RegisterFlagCompletionFunc(flag, with); err != nil {
		panic(err) // the caller has defined the flag, once
	}
}

// StartingWith returns the sorted words with this beginning, each once.
func StartingWith(words []string, begin string) []string {
	words = slices.DeleteFunc(words, func(w string) bool { return !strings.HasPrefix(w, begin) })
	slices.Sort(words)
	return slices.Compact(words)
}
