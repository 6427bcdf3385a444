package ask

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// ExplainCommand says what a request would get, and why.
func ExplainCommand(load dial.Loader) *cobra.Command {
	to := dial.ToAdmin(load)
	domain, asJSON, cost := "", false, int64(1)
	var of idOf
	cmd := &cobra.Command{
		Use:   "explain --domain D KEY=VALUE[,KEY=VALUE]...",
		Short: "Say what a request would get, and why",
		Long: `Says what a request would get and why: which rule each descriptor matches, or
where it leaves the limits, which plan and assignments hold, and what is left of
each limit. The arguments are those of take. It takes nothing. With --id it
also says what takes with this id have charged.`,
		Example: `  ratelimitd explain --domain api user=alice
  ratelimitd explain --domain tenants plan=free,tenant=acme tenant=acme,user=bob`,
		Args:              cmdline.AtLeastOne("a descriptor, such as user=alice"),
		ValidArgsFunction: dial.CompleteEntries(load),
	}
	dial.BindDomain(cmd, &domain, load)
	cmd.Flags().Var(cmdline.Number(&cost, 1, bucket.MaxRequests), "cost", "what the request would take")
	of.bind(cmd.Flags())
	cmdline.BindJSON(cmd.Flags(), &asJSON, "the answer")
	to.Bind(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := of.check(); err != nil {
			return err
		}
		take, err := assigntext.ParseTake(domain, args)
		if err != nil {
			return err
		}
		take.Id = of.id
		for _, d := range take.Descriptors {
			d.Cost = new(uint64(cost))
		}
		return to.WithAdmin(func(a dial.Admin) error {
			r, err := dial.Call(cmd.Context(), a, a.Explain, &adminv1.ExplainRequest{Take: take, Caller: of.caller})
			switch {
			case err != nil:
				return err
			case asJSON:
				return cmdline.WriteMessage(cmd.OutOrStdout(), r)
			}
			x := explained{cost: cost, id: of.id, now: time.Now()}
			return x.writeRequest(cmd.OutOrStdout(), r)
		})
	}
	return cmd
}
