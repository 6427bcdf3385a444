package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/config/forwardauth"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

func checkCommand() *cobra.Command {
	var options config.LoadOptions
	auth := ""
	cmd := &cobra.Command{
		Use:   "check PATH...",
		Short: "Validate limits files and show what they say",
		Long: `Validates limits files, or folders of them, together: as one daemon would load
them; and with --auth the file for forward auth of that daemon. Prints every
error as

  file:line:column: path: what was found, what is allowed

and exits with 1; or, where there is none, a table of all limits in plain words,
and warnings, which begin so, for limits and rules that can have no effect, for
patterns that cost much to match, and for what --lenient accepts.`,
		Example: `  ratelimitd check deploy/limits
  ratelimitd check deploy/limits --auth auth.yaml`,
		Args: atLeastOne("a limits file or a folder of them"),
		RunE: func(cmd *cobra.Command, paths []string) error {
			rules, err := options.LoadRules(paths...)
			failed, err := showErrors(cmd, err)
			if err != nil {
				return err
			}
			var endpoints *forwardauth.File
			if auth != "" {
				endpoints, err = forwardauth.Load(auth)
				authFailed, err := showErrors(cmd, err)
				if err != nil {
					return err
				}
				failed = failed || authFailed
			}
			if failed {
				return exitCode(exitError)
			}
			return showRules(cmd, rules, endpoints)
		},
	}
	cmd.Flags().BoolVar(&options.Lenient, "lenient", false, "warn of what envoyproxy/ratelimit accepts, as with limits.lenient")
	cmd.Flags().BoolVar(&options.MergeDomains, "merge-domains", false, "let several files say something of one domain, as with limits.merge_domains")
	cmd.Flags().StringVar(&auth, "auth", "", "also validate a file for forward auth, as that of auth.path")
	return cmd
}

// showErrors prints the errors of files. It returns any other error.
func showErrors(cmd *cobra.Command, err error) (failed bool, _ error) {
	var errs yamlfile.Errors
	if !errors.As(err, &errs) {
		return false, err
	}
	for _, e := range errs {
		fmt.Fprintln(cmd.ErrOrStderr(), e.Error())
	}
	return true, nil
}

// showRules prints good files; endpoints may be nil.
func showRules(cmd *cobra.Command, rules *config.Rules, endpoints *forwardauth.File) error {
	warnings := rules.Warnings()
	if endpoints != nil {
		warnings = append(slices.Clone(warnings), endpoints.Warnings(rules.HasDomain)...)
	}
	for _, w := range warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+w.String())
	}
	if err := rules.WriteTable(cmd.OutOrStdout()); err != nil || endpoints == nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout())
	return endpoints.WriteTable(cmd.OutOrStdout())
}
