package steer

import (
	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

func blockCommand(load dial.Loader) *cobra.Command {
	to := dial.ToAdmin(load)
	given := adminv1.Assignment{Blocked: true}
	var ends end
	dryRun, force, asJSON := false, false, false
	cmd := &cobra.Command{
		Use:   "block --domain D KEY=VALUE[,KEY=VALUE]...",
		Short: "Deny all requests of a customer",
		Long: `Denies every request with a descriptor that begins with the entries of an
argument, until unblock or the given end. Anything else assigned to them stays,
and applies again once the block has ended. If no rule applies to such
descriptors, perhaps because of a misspelt key, the block is refused, unless
--force.
` + inForce,
		Example: `  ratelimitd block --domain api tenant=acme --for 24h --reason "scraping"
  ratelimitd block --domain login address=192.0.2.7 --until 2026-12-31`,
		ValidArgsFunction: dial.CompleteEntries(load),
	}
	dial.BindDomain(cmd, &given.Domain, load)
	bindEnd(cmd, &ends)
	bindReason(cmd, &given.Reason)
	bindForce(cmd.Flags(), &force, "do it though no rule is for such descriptors")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change, and change nothing")
	cmdline.BindJSON(cmd.Flags(), &asJSON, "each change")
	to.Bind(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return setAll(cmd, &to, setting{given: &given, ends: ends, args: args, how: asking{dryRun: dryRun, strict: !force}, asJSON: asJSON, send: sendPatches})
	}
	return cmd
}

func unblockCommand(load dial.Loader) *cobra.Command {
	to := dial.ToAdmin(load)
	r := removing{parts: []adminv1.Part{adminv1.Part_PART_BLOCK}}
	dryRun, asJSON := false, false
	cmd := &cobra.Command{
		Use:   "unblock --domain D KEY=VALUE[,KEY=VALUE]...",
		Short: "End a block",
		Long: `Ends the block of those with the entries of an argument. Anything else assigned
to them applies again, or the limits files do.
` + inForce,
		Example:           `  ratelimitd unblock --domain api tenant=acme --reason "they have stopped"`,
		Args:              cmdline.AtLeastOne(assigntext.SubjectArgument),
		ValidArgsFunction: dial.CompleteEntries(load),
	}
	dial.BindDomain(cmd, &r.domain, load)
	bindReason(cmd, &r.reason)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change, and change nothing")
	cmdline.BindJSON(cmd.Flags(), &asJSON, "each change")
	to.Bind(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return r.removeOf(cmd, &to, args, &changes{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), asJSON: asJSON, how: asking{dryRun: dryRun}})
	}
	return cmd
}
