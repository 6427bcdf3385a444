package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// completionWait is how long the shell's user waits at most for what a daemon
// knows.
const completionWait = 500 * time.Millisecond

// completion returns what may stand at a place, given the command line so far.
type completion = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective)

// bindDomain defines the flag of the domain, which a command needs.
func bindDomain(cmd *cobra.Command, to *string, load func() (settings.Settings, error)) {
	cmd.Flags().StringVar(to, "domain", "", "domain of the limits (required)")
	if err := cmd.MarkFlagRequired("domain"); err != nil {
		panic(err) // the flag is defined above
	}
	completeFlag(cmd, "domain", completeDomain(load))
}

func completeFlag(cmd *cobra.Command, flag string, with completion) {
	if err := cmd.RegisterFlagCompletionFunc(flag, with); err != nil {
		panic(err) // the caller has defined the flag, once
	}
}

// bindWord defines a flag for one of a few words.
func bindWord(cmd *cobra.Command, to *string, words []string, flag, usage string) {
	cmd.Flags().Var(wordFlag{to, words}, flag, usage)
	completeFlag(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// askDaemon asks the daemon of the command line for the sake of completion. It says
// nothing where there is none, or where it does not answer in time.
func askDaemon(cmd *cobra.Command, load func() (settings.Settings, error), ask func(context.Context, adminv1.AdminServiceClient)) {
	to := adminTarget(load)
	for name, value := range map[string]*string{
		adminPort.flag: &to.address, "token-file": &to.tokenFile,
		"tls-ca": &to.ca, "tls-cert": &to.cert, "tls-key": &to.key, "tls-server-name": &to.serverName,
	} {
		if f := cmd.Flags().Lookup(name); f != nil {
			*value = f.Value.String()
		}
	}
	if f := cmd.Flags().Lookup("tls"); f != nil {
		to.tls = f.Value.String() == "true"
	}
	conn, err := to.dial()
	if err != nil {
		return
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), completionWait)
	defer cancel()
	ask(ctx, adminv1.NewAdminServiceClient(conn))
}

// startingWith returns the sorted words that begin so, each once.
func startingWith(words []string, begin string) []string {
	words = slices.DeleteFunc(words, func(w string) bool { return !strings.HasPrefix(w, begin) })
	slices.Sort(words)
	return slices.Compact(words)
}

// completeDomain completes the name of a domain.
func completeDomain(load func() (settings.Settings, error)) completion {
	return func(cmd *cobra.Command, _ []string, toComplete string) (names []string, _ cobra.ShellCompDirective) {
		askDaemon(cmd, load, func(ctx context.Context, c adminv1.AdminServiceClient) {
			r, err := c.ListDomains(ctx, &adminv1.ListDomainsRequest{})
			if err != nil {
				return
			}
			for _, d := range r.GetDomains() {
				names = append(names, d.GetName())
			}
		})
		return startingWith(names, toComplete), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeEntries completes the key of a descriptor's first entry.
func completeEntries(load func() (settings.Settings, error)) completion {
	return func(cmd *cobra.Command, _ []string, toComplete string) (keys []string, _ cobra.ShellCompDirective) {
		domain, err := cmd.Flags().GetString("domain")
		if err != nil || domain == "" || strings.ContainsAny(toComplete, "=,") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		askDaemon(cmd, load, func(ctx context.Context, c adminv1.AdminServiceClient) {
			r, err := c.ListDomains(ctx, &adminv1.ListDomainsRequest{})
			if err != nil {
				return
			}
			for _, d := range r.GetDomains() {
				if d.GetName() != domain {
					continue
				}
				for _, key := range d.GetKeys() {
					keys = append(keys, formatEntries([]*ratelimitv1.Entry{{Key: key}}))
				}
			}
		})
		return startingWith(keys, toComplete), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// completeLimit completes the name of a limit of the domain's rules, with a text
// behind it.
func completeLimit(load func() (settings.Settings, error), behind string) completion {
	return func(cmd *cobra.Command, _ []string, toComplete string) (names []string, directive cobra.ShellCompDirective) {
		directive = cobra.ShellCompDirectiveNoFileComp
		if behind != "" {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		domain, err := cmd.Flags().GetString("domain")
		if err != nil || domain == "" {
			return nil, directive
		}
		askDaemon(cmd, load, func(ctx context.Context, c adminv1.AdminServiceClient) {
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
		return startingWith(names, toComplete), directive
	}
}

// completePlan completes the name of a plan of the domain's rules.
func completePlan(load func() (settings.Settings, error)) completion {
	return func(cmd *cobra.Command, _ []string, toComplete string) (names []string, _ cobra.ShellCompDirective) {
		domain, err := cmd.Flags().GetString("domain")
		if err != nil || domain == "" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		askDaemon(cmd, load, func(ctx context.Context, c adminv1.AdminServiceClient) {
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
		return startingWith(names, toComplete), cobra.ShellCompDirectiveNoFileComp
	}
}
