package steer

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
)

// bindForce defines the flag that allows something that would otherwise be refused.
func bindForce(fs *pflag.FlagSet, to *bool, what string) { fs.BoolVar(to, "force", false, what) }

// bindReason defines the flag that says why a change is made.
func bindReason(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "reason", "", "why, for the audit")
	cmdline.Complete(cmd, "reason", cobra.NoFileCompletions)
}
