// Package complete completes, in a shell, what a running daemon knows: domains, keys,
// limits and plans. It imports dial, flags and subjecttext.
package complete

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/cli/flags"
	"github.com/ratelimitd/ratelimitd/internal/cli/subjecttext"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// BindDomain defines the required flag for the domain.
func BindDomain(cmd *cobra.Command, to *string, load dial.Loader) {
	cmd.Flags().StringVar(to, "domain", "", "domain of the limits (required)")
	if err := cmd.MarkFlagRequired("domain"); err != nil {
		panic(err) // the flag is defined above
	}
	flags.Complete(cmd, "domain", Domain(load))
}

// Domain completes the name of a domain.
func Domain(load dial.Loader) flags.Completion {
	return func(cmd *cobra.Command, _ []string, toComplete string) (names []string, _ cobra.ShellCompDirective) {
		dial.AskQuietly(cmd, load, func(ctx context.Context, c adminv1.AdminServiceClient) {
			r, err := c.ListDomains(ctx, &adminv1.ListDomainsRequest{})
			if err != nil {
				return
			}
			for _, d := range r.GetDomains() {
				names = append(names, d.GetName())
			}
		})
		return flags.StartingWith(names, toComplete), cobra.ShellCompDirectiveNoFileComp
	}
}

// Entries completes the key of a descriptor's first entry.
func Entries(load dial.Loader) flags.Completion {
	return func(cmd *cobra.Command, _ []string, toComplete string) (keys []string, _ cobra.ShellCompDirective) {
		domain, err := cmd.Flags().GetString("domain")
		if err != nil || domain == "" || strings.ContainsAny(toComplete, "=,") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		dial.AskQuietly(cmd, load, func(ctx context.Context, c adminv1.AdminServiceClient) {
			r, err := c.ListDomains(ctx, &adminv1.ListDomainsRequest{})
			if err != nil {
				return
			}
			for _, d := range r.GetDomains() {
				if d.GetName() != domain {
					continue
				}
				for _, key := range d.GetKeys() {
					keys = append(keys, subjecttext.Format([]*ratelimitv1.Entry{{Key: key}}))
				}
			}
		})
		return flags.StartingWith(keys, toComplete), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// Limit completes the name of a limit of the domain's rules, followed by a text.
func Limit(load dial.Loader, behind string) flags.Completion {
	return func(cmd *cobra.Command, _ []string, toComplete string) (names []string, directive cobra.ShellCompDirective) {
		directive = cobra.ShellCompDirectiveNoFileComp
		if behind != "" {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		domain, err := cmd.Flags().GetString("domain")
		if err != nil || domain == "" {
			return nil, directive
		}
		dial.AskQuietly(cmd, load, func(ctx context.Context, c adminv1.AdminServiceClient) {
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
		return flags.StartingWith(names, toComplete), directive
	}
}

// Plan completes the name of a plan of the domain's rules.
func Plan(load dial.Loader) flags.Completion {
	return func(cmd *cobra.Command, _ []string, toComplete string) (names []string, _ cobra.ShellCompDirective) {
		domain, err := cmd.Flags().GetString("domain")
		if err != nil || domain == "" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		dial.AskQuietly(cmd, load, func(ctx context.Context, c adminv1.AdminServiceClient) {
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
		return flags.StartingWith(names, toComplete), cobra.ShellCompDirectiveNoFileComp
	}
}
