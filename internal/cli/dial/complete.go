package dial

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// BindDomain defines the required flag for the domain.
func BindDomain(cmd *cobra.Command, to *string, load Loader) {
	cmd.Flags().StringVar(to, "domain", "", "domain of the limits (required)")
	if err := cmd.MarkFlagRequired("domain"); err != nil {
		panic(err) // the flag is defined above
	}
	cmdline.Complete(cmd, "domain", CompleteDomain(load))
}

// CompleteDomain completes the name of a domain.
func CompleteDomain(load Loader) cmdline.Completion {
	return func(cmd *cobra.Command, _ []string, toComplete string) (names []string, _ cobra.ShellCompDirective) {
		AskQuietly(cmd, load, func(ctx context.Context, c adminv1.AdminServiceClient) {
			r, err := c.ListDomains(ctx, &adminv1.ListDomainsRequest{})
			if err != nil {
				return
			}
			for _, d := range r.GetDomains() {
				names = append(names, d.GetName())
			}
		})
		return cmdline.StartingWith(names, toComplete), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteEntries completes the key of a descriptor's first entry.
func CompleteEntries(load Loader) cmdline.Completion {
	return func(cmd *cobra.Command, _ []string, toComplete string) (keys []string, _ cobra.ShellCompDirective) {
		domain, err := cmd.Flags().GetString("domain")
		if err != nil || domain == "" || strings.ContainsAny(toComplete, "=,") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		AskQuietly(cmd, load, func(ctx context.Context, c adminv1.AdminServiceClient) {
			r, err := c.ListDomains(ctx, &adminv1.ListDomainsRequest{})
			if err != nil {
				return
			}
			for _, d := range r.GetDomains() {
				if d.GetName() != domain {
					continue
				}
				for _, key := range d.GetKeys() {
					keys = append(keys, assigntext.FormatEntries([]*ratelimitv1.Entry{{Key: key}}))
				}
			}
		})
		return cmdline.StartingWith(keys, toComplete), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// CompleteLimit completes the name of a limit of the domain's rules, followed by a text.
func CompleteLimit(load Loader, behind string) cmdline.Completion {
	return func(cmd *cobra.Command, _ []string, toComplete string) (names []string, directive cobra.ShellCompDirective) {
		directive = cobra.ShellCompDirectiveNoFileComp
		if behind != "" {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		domain, err := cmd.Flags().GetString("domain")
		if err != nil || domain == "" {
			return nil, directive
		}
		AskQuietly(cmd, load, func(ctx context.Context, c adminv1.AdminServiceClient) {
			r, err := c.GetRule(ctx, &adminv1.GetRuleRequest{Domain: domain})
			if err != nil {
				return
			}
			add := func(limits []*adminv1.RuleLimit) {
				for _, l := range limits {
					if l.GetName() != "" {
						names = append(names, l.GetName()+behind)
					}
				}
			}
			for _, rule := range r.GetRules() {
				add(rule.GetLimits())
				for _, plan := range rule.GetPlans() {
					add(plan.GetLimits())
				}
			}
		})
		return cmdline.StartingWith(names, toComplete), directive
	}
}

// CompletePlan completes the name of a plan of the domain's rules.
func CompletePlan(load Loader) cmdline.Completion {
	return func(cmd *cobra.Command, _ []string, toComplete string) (names []string, _ cobra.ShellCompDirective) {
		domain, err := cmd.Flags().GetString("domain")
		if err != nil || domain == "" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		AskQuietly(cmd, load, func(ctx context.Context, c adminv1.AdminServiceClient) {
			r, err := c.GetRule(ctx, &adminv1.GetRuleRequest{Domain: domain})
			if err != nil {
				return
			}
			for _, rule := range r.GetRules() {
				for _, plan := range rule.GetPlans() {
					names = append(names, plan.GetName())
				}
			}
		})
		return cmdline.StartingWith(names, toComplete), cobra.ShellCompDirectiveNoFileComp
	}
}
