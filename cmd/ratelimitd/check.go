package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/config"
)

func checkCommand() *cobra.Command {
	var options config.LoadOptions
	cmd := &cobra.Command{
		Use:   "check PATH...",
		Short: "Validate limits files and show what they say",
		Long: `Validates limits files, or folders of them, together: as one daemon would load
them. Prints every error as

  file:line:column: path: what was found, what is allowed

and exits with 1; or, where there is none, a table of all limits in plain words,
and warnings, which begin so, for limits and rules that can have no effect, and
for what --lenient accepts.`,
		Example: `  ratelimitd check deploy/limits`,
		Args:    atLeastOne("a limits file or a folder of them"),
		RunE: func(cmd *cobra.Command, paths []string) error {
			rules, err := options.LoadRules(paths...)
			var errs config.Errors
			switch {
			case errors.As(err, &errs):
				for _, e := range errs {
					fmt.Fprintln(cmd.ErrOrStderr(), e.Error())
				}
				return exitCode(exitError)
			case err != nil:
				return err
			}
			for _, w := range rules.Warnings() {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+w.String())
			}
			return rules.WriteTable(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&options.Lenient, "lenient", false, "warn of what envoyproxy/ratelimit accepts, as with limits.lenient")
	cmd.Flags().BoolVar(&options.MergeDomains, "merge-domains", false, "let several files say something of one domain, as with limits.merge_domains")
	return cmd
}
