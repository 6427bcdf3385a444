package ask

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// InspectCommand shows what is left of the limits of subjects.
func InspectCommand(load dial.Loader) *cobra.Command {
	to := dial.ToAdmin(load)
	domain, asJSON := "", false
	var of idOf
	cmd := &cobra.Command{
		Use:   "inspect --domain D KEY=VALUE[,KEY=VALUE]...",
		Short: "Show what is left of a customer's limits",
		Long: `Shows the limits of a customer, such as tenant=acme: what is left of each, and
where its numbers come from. It takes nothing.

Where the last key names the holder of a slot (algorithm: concurrency), its
value may be empty: then those who hold slots are listed, the first to lapse
first.

With --id it also says what takes with this id have charged: what they took, or
what a settlement has made of it.`,
		Example: `  ratelimitd inspect --domain api user=alice
  ratelimitd inspect --domain api tenant=acme,request_id=
  ratelimitd inspect --domain llm --id req-1 user=alice`,
		Args:              cmdline.AtLeastOne(assigntext.SubjectArgument),
		ValidArgsFunction: dial.CompleteEntries(load),
	}
	dial.BindDomain(cmd, &domain, load)
	of.bind(cmd.Flags())
	cmdline.BindJSON(cmd.Flags(), &asJSON, "each answer")
	to.Bind(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := of.check(); err != nil {
			return err
		}
		return to.EachSubject(args, func(a dial.Admin, entries []*ratelimitv1.Entry) error {
			r, err := dial.Call(cmd.Context(), a, a.Inspect, &adminv1.InspectRequest{Domain: domain, Entries: entries, Id: of.id, Caller: of.caller})
			switch {
			case err != nil:
				return err
			case asJSON:
				return cmdline.WriteMessage(cmd.OutOrStdout(), r)
			}
			x := explained{id: of.id, now: time.Now()}
			return x.writeSubject(cmd.OutOrStdout(), r)
		})
	}
	return cmd
}
