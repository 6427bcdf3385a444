package main

import (
	"math"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

func explainCommand(load func() (settings.Settings, error)) *cobra.Command {
	to := adminTarget(load)
	domain, asJSON, cost := "", false, int64(1)
	cmd := &cobra.Command{
		Use:   "explain --domain D KEY=VALUE[,KEY=VALUE]...",
		Short: "Say what a request would get, and why",
		Long: `Says what a request would get and why: which rule each descriptor matches and
which it does not, which plan and assignments hold, and what is left of each
limit. The arguments are those of query. It takes nothing.`,
		Example: `  ratelimitd explain --domain api user=alice
  ratelimitd explain --domain tenants plan=free,tenant=acme tenant=acme,user=bob`,
		Args:              atLeastOne("a descriptor, such as user=alice"),
		ValidArgsFunction: completeEntries(load),
	}
	bindDomain(cmd, &domain, load)
	cmd.Flags().Var(numberFlag{&cost, 1, math.MaxUint32}, "cost", "what the request would take")
	bindJSON(cmd.Flags(), &asJSON, "the answer")
	to.bind(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		take, err := takeOf(domain, args)
		if err != nil {
			return err
		}
		for _, d := range take.Descriptors {
			d.Cost = new(uint64(cost))
		}
		return to.withAdmin(func(a admin) error {
			r, err := call(cmd.Context(), a, a.Explain, &adminv1.ExplainRequest{Take: take})
			switch {
			case err != nil:
				return err
			case asJSON:
				return printMessage(cmd.OutOrStdout(), r)
			}
			return writeExplainTree(cmd.OutOrStdout(), r, columnsOf(cmd.OutOrStdout()))
		})
	}
	return cmd
}
