package steer

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// resetting is a command line of reset.
type resetting struct {
	to                    dial.Target
	domain, reason, limit string
	force, dryRun, asJSON bool
}

// resetCommand gives subjects full limits again.
func resetCommand(load dial.Loader) *cobra.Command {
	r := resetting{to: dial.ToAdmin(load)}
	cmd := &cobra.Command{
		Use:   "reset --domain D KEY=VALUE[,KEY=VALUE]...",
		Short: "Give a customer full limits again",
		Long: `Forgets what was taken from the limits of a customer, such as tenant=acme, or
from the one of --limit, as if nothing had been taken. If the values of a
pattern share one counter (share_threshold), it is reset for all of them. If no
rule applies to the customer, or nothing was taken, perhaps because the name is
misspelt, the reset is refused, unless --force.

Where the last key names the holder of a slot (algorithm: concurrency), an empty
value frees all slots, and that of a holder frees only its own.
` + inForce,
		Example: `  ratelimitd reset --domain api user=alice --reason "ticket 815"
  ratelimitd reset --domain api user=alice --limit day --dry-run`,
		Args:              cmdline.AtLeastOne(assigntext.SubjectArgument),
		ValidArgsFunction: dial.CompleteEntries(load),
	}
	dial.BindDomain(cmd, &r.domain, load)
	cmd.Flags().StringVar(&r.limit, "limit", "", "name of the one limit to reset (default: all limits)")
	bindReason(cmd, &r.reason)
	bindForce(cmd.Flags(), &r.force, "do it though there is nothing to reset")
	cmd.Flags().BoolVar(&r.dryRun, "dry-run", false, "say what would be reset, and change nothing")
	cmdline.BindJSON(cmd.Flags(), &r.asJSON, "each answer")
	r.to.Bind(cmd.Flags())
	cmd.RunE = r.run
	return cmd
}

func (r *resetting) run(cmd *cobra.Command, args []string) error {
	p := resets{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), asJSON: r.asJSON}
	err := r.to.EachSubject(args, func(a dial.Admin, entries []*ratelimitv1.Entry) error {
		if r.dryRun {
			return r.preview(cmd, a, entries, &p)
		}
		request := &adminv1.ResetRequest{Domain: r.domain, Entries: entries, Reason: r.reason, Strict: !r.force}
		if cmd.Flags().Changed("limit") {
			request.Limit = &r.limit
		}
		subject := assigntext.SubjectText(r.domain, entries)
		response, err := dial.Call(cmd.Context(), a, a.Reset, request)
		if p.printRefused(subject, err) {
			return nil
		} else if err != nil {
			return err
		}
		return p.print(subject, response)
	})
	if err != nil {
		return err
	}
	return p.end()
}

// preview prints what a reset would do: which limits it would reset, and what is left of
// each now.
func (r *resetting) preview(cmd *cobra.Command, a dial.Admin, entries []*ratelimitv1.Entry, p *resets) error {
	found, err := dial.Call(cmd.Context(), a, a.Inspect, &adminv1.InspectRequest{Domain: r.domain, Entries: entries})
	if err != nil {
		return err
	}
	would := &adminv1.ResetResponse{}
	var texts []string
	isCounted := false
	for _, l := range found.GetDescriptor_().GetLimits() {
		name := l.GetLimit().GetName()
		if r.limit != "" && name != r.limit {
			continue
		}
		would.Limits = append(would.Limits, name)
		texts = append(texts, fmt.Sprintf("%s (%s of %s left)", cmp.Or(name, "the limit without a name"),
			words.Thousands(int64(l.GetRemaining())), words.Thousands(int64(l.GetLimit().GetCapacity()))))
		isCounted = isCounted || l.GetRemaining() != l.GetLimit().GetCapacity() || l.GetResetAfter().AsDuration() > 0
	}
	subject := assigntext.SubjectText(r.domain, entries)
	switch {
	case len(texts) == 0:
		would.Warnings = append(would.Warnings, "it has no limit to reset")
	case !isCounted:
		would.Warnings = append(would.Warnings, "nothing is counted")
	}
	isRefused := len(would.GetWarnings()) > 0 && !r.force
	if isRefused {
		p.isRefused, p.isForceable = true, true
	}
	if p.asJSON {
		return cmdline.WriteMessage(p.out, would)
	}
	text := fmt.Sprintf("would be reset  %s: %s", subject, strings.Join(append(texts, would.GetWarnings()...), ", "))
	if isRefused {
		text = fmt.Sprintf("would be refused  %s: %s", subject, strings.Join(would.GetWarnings(), ", "))
	}
	_, err = fmt.Fprintln(p.out, spelling.Visible(text))
	return err
}

// resets prints the results of resets, and keeps the exit code of the command.
type resets struct {
	out, err io.Writer
	asJSON   bool
	// isRefused is set once a reset was refused, and isForceable if --force would have
	// allowed one.
	isRefused, isForceable bool
}

// printRefused reports a refused reset, if the error says that it was refused.
func (t *resets) printRefused(subject string, err error) bool {
	failed := dial.CallError{}
	if !isResetRefused(status.Code(err)) || !errors.As(err, &failed) {
		return false
	}
	t.isRefused = true
	t.isForceable = t.isForceable || status.Code(err) == codes.FailedPrecondition
	fmt.Fprintln(t.err, spelling.Visible(fmt.Sprintf("refused  %s: %s", subject, failed.Message())))
	return true
}

// print reports a reset that was made.
func (t *resets) print(subject string, r *adminv1.ResetResponse) error {
	printWarnings(t.err, subject, r.GetWarnings())
	if t.asJSON {
		return cmdline.WriteMessage(t.out, r)
	}
	text := fmt.Sprintf("reset  %s: %s", subject, assigntext.LimitNames(r.GetLimits()))
	if len(r.GetLimits()) == 0 {
		text = fmt.Sprintf("unchanged  %s: no limit to reset", subject)
	}
	_, err := fmt.Fprintln(t.out, spelling.Visible(text))
	return err
}

// end returns what the command ends with.
func (t *resets) end() error {
	return endWith(t.err, t.isForceable, t.isRefused)
}

// isResetRefused reports whether a code means that a reset was not made because of what
// it names.
func isResetRefused(code codes.Code) bool {
	return code == codes.FailedPrecondition || code == codes.InvalidArgument
}
