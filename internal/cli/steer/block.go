package steer

import (
	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/complete"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/cli/jsonline"
	"github.com/ratelimitd/ratelimitd/internal/cli/subjecttext"
	"github.com/ratelimitd/ratelimitd/internal/cli/terminal"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
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
argument, at once and at all daemons, until unblock or the given end. Anything
else assigned to them stays, and applies again once the block has ended. If no
rule applies to such descriptors, perhaps because of a misspelt key, the block
is refused, unless --force.
` + codesOfChanges,
		Example: `  ratelimitd block --domain api tenant=acme --for 24h --reason "scraping"
  ratelimitd block --domain login address=192.0.2.7 --until 2026-12-31`,
		ValidArgsFunction: complete.Entries(load),
	}
	complete.BindDomain(cmd, &given.Domain, load)
	bindEnd(cmd, &ends)
	bindReason(cmd, &given.Reason)
	bindForce(cmd.Flags(), &force, "do it though no rule is for such descriptors")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change, and change nothing")
	jsonline.Bind(cmd.Flags(), &asJSON, "each change")
	to.BindChange(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return setAll(cmd, &to, setting{given: &given, ends: ends, args: args, how: asking{dryRun: dryRun, strict: !force}, asJSON: asJSON, send: sendPuts})
	}
	return cmd
}

func unblockCommand(load dial.Loader) *cobra.Command {
	to := dial.ToAdmin(load)
	domain, reason, asJSON := "", "", false
	cmd := &cobra.Command{
		Use:   "unblock --domain D KEY=VALUE[,KEY=VALUE]...",
		Short: "End a block",
		Long: `Ends the block of those with the entries of an argument, at once and at all
daemons. Anything else assigned to them applies again, or the limits files do.
` + codesOfChanges,
		Example:           `  ratelimitd unblock --domain api tenant=acme --reason "they have stopped"`,
		Args:              cmdline.AtLeastOne(subjecttext.Argument),
		ValidArgsFunction: complete.Entries(load),
	}
	complete.BindDomain(cmd, &domain, load)
	bindReason(cmd, &reason)
	jsonline.Bind(cmd.Flags(), &asJSON, "each change")
	to.BindChange(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		told := changes{out: cmd.OutOrStdout(), err: terminal.Messages(cmd.ErrOrStderr()), asJSON: asJSON}
		err := to.EachSubject(args, func(a dial.Admin, entries []*ratelimitv1.Entry) error {
			r, err := dial.Call(cmd.Context(), a, a.DeleteAssignment, &adminv1.DeleteAssignmentRequest{
				Domain: domain, Entries: entries, Reason: reason, Part: adminv1.Part_PART_BLOCK, MaxWait: a.MaxWait(),
			})
			if err != nil {
				return err
			}
			told.lacking.add(r)
			return told.tell(domain, entries, r.GetChange())
		})
		if err != nil {
			return err
		}
		return told.end()
	}
	return cmd
}
