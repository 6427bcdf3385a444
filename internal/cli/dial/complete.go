package dial

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
	return completion(load, 0, func(ctx context.Context, _ string, c adminv1.AdminServiceClient) (names []string) {
		r, _ := c.ListDomains(ctx, &adminv1.ListDomainsRequest{})
		for _, d := range r.GetDomains() {
			names = append(names, d.GetName())
		}
		return names
	})
}

// CompleteEntries completes the key of a descriptor's first entry.
func CompleteEntries(load Loader) cmdline.Completion {
	return completion(load, cobra.ShellCompDirectiveNoSpace, func(ctx context.Context, domain string, c adminv1.AdminServiceClient) (keys []string) {
		r, _ := c.ListDomains(ctx, &adminv1.ListDomainsRequest{})
		for _, d := range r.GetDomains() {
			if d.GetName() != domain {
				continue
			}
			for _, key := range d.GetKeys() {
				keys = append(keys, assigntext.FormatEntries([]*ratelimitv1.Entry{{Key: key}}))
			}
		}
		return keys
	})
}

// completion completes words that a daemon lists for the domain of the command line.
func completion(load Loader, directive cobra.ShellCompDirective, list func(ctx context.Context, domain string, c adminv1.AdminServiceClient) []string) cmdline.Completion {
	return func(cmd *cobra.Command, _ []string, toComplete string) (words []string, _ cobra.ShellCompDirective) {
		domain := ""
		if f := cmd.Flags().Lookup("domain"); f != nil {
			domain = f.Value.String()
		}
		AskQuietly(cmd, load, func(ctx context.Context, c adminv1.AdminServiceClient) { words = list(ctx, domain, c) })
		if words = cmdline.StartingWith(words, toComplete); len(words) == 0 {
			directive = 0
		}
		return words, directive | cobra.ShellCompDirectiveNoFileComp
	}
}

// completionWait is how long a shell's user waits at most for what a daemon knows.
const completionWait = 500 * time.Millisecond

// AskQuietly asks the daemon that the flags of a command name. It says nothing if there is
// none or if it does not answer in time.
func AskQuietly(cmd *cobra.Command, load Loader, ask func(context.Context, adminv1.AdminServiceClient)) {
	to := ToAdmin(load)
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	to.Bind(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		if given := cmd.Flags().Lookup(f.Name); given != nil && given.Changed {
			_ = f.Value.Set(given.Value.String()) // it was read so
		}
	})
	conn, err := to.Dial()
	if err != nil {
		return
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), completionWait)
	defer cancel()
	ask(ctx, adminv1.NewAdminServiceClient(conn))
}
