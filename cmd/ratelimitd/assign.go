package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// assignCommands change what is assigned.
func assignCommands(load func() (settings.Settings, error)) []*cobra.Command {
	return []*cobra.Command{assignCommand(load), unassignCommand(load), blockCommand(load), unblockCommand(load)}
}

const codesOfChanges = `
Exits with 0 when it is in force at all daemons, with 4 when it is done and some
daemon may not have it in force yet, and with 1 on an error.`

const subjectArgument = "whom it is for, such as tenant=acme"

func assignCommand(load func() (settings.Settings, error)) *cobra.Command {
	to := adminTarget(load)
	var given adminv1.Assignment
	var ends end
	var i importer
	only, force, asJSON := false, false, false
	cmd := &cobra.Command{
		Use:   "assign --domain D KEY=VALUE[,KEY=VALUE]... {--plan P | --limit N | --unlimited}...",
		Short: "Give customers a plan, numbers of their own, or no limit",
		Long: `Gives a customer, such as tenant=acme, a plan, numbers of its own or no limit,
at once and at all daemons. A plan is for all descriptors that begin with these
entries; --limit and --unlimited are for the descriptor of exactly these
entries. These are parts beside each other: what is not named stays, and what is
named has the end that is given now, or none. In force is --unlimited, or else
the numbers of each limit, and the plan for the others. With --only what is
named is all that is left, besides a block. What no rule has is refused, and so
is what would do nothing for anybody, unless --force.

With --from it does so for each row of a file of CSV or of JSON lines, or of
standard input (-): what assignments --export writes. A header of CSV names
columns: domain, entries, plan, limits, unlimited, blocked, the ends of these
(plan_until, limits_until, unlimited_until, blocked_until, or until for all but
a block), and reason. A part whose column is not there stays; an empty cell
removes it, except a block. A line of JSON says the whole, except a block.
Nothing is done if a row is malformed, unless --skip-bad leaves those out. Rows
that are in force already stay as they are, so it does no harm to do it again.
Rows that would do nothing for anybody are made all the same: the first are
named, all are counted, and the exit code is as without them.
` + codesOfChanges,
		Example: `  ratelimitd assign --domain api tenant=acme --plan pro --until 2026-12-31 --reason "contract 4711"
  ratelimitd assign --domain api tenant=acme --limit month=5000000/30d --for 24h
  ratelimitd assign --domain api tenant=monitoring --unlimited --only
  ratelimitd assign --from customers.csv --dry-run`,
		ValidArgsFunction: completeEntries(load),
	}
	fs := cmd.Flags()
	fs.StringVar(&given.Domain, "domain", "", "domain of the limits; with --from, of rows that name none")
	completeFlag(cmd, "domain", completeDomain(load))
	fs.StringVar(&given.Plan, "plan", "", "the plan")
	completeFlag(cmd, "plan", completePlan(load))
	fs.Var(numbersFlag{&given.Numbers}, "limit", "numbers in place of those of a limit, "+allowedNumbers+"; may come several times")
	completeFlag(cmd, "limit", completeLimit(load, "="))
	fs.BoolVar(&given.Unlimited, "unlimited", false, "no limit")
	fs.BoolVar(&only, "only", false, "remove all that is not named, except a block")
	bindEnd(cmd, &ends)
	bindReason(cmd, &given.Reason)
	bindForce(fs, &force, "do it though it would do nothing for anybody")
	fs.StringVar(&i.path, "from", "", "file of assignments, or - for standard input")
	fs.BoolVar(&i.skipBad, "skip-bad", false, "with --from: leave out malformed rows")
	fs.BoolVar(&i.dryRun, "dry-run", false, "say what would change, and change nothing")
	bindJSON(fs, &asJSON, "each change, or with --from the summary,")
	to.bindChange(fs)
	for _, alone := range []string{"plan", "limit", "unlimited", "only", "until", "for", "reason", "force"} {
		cmd.MarkFlagsMutuallyExclusive("from", alone)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if i.path != "" {
			i.domain, i.asJSON = given.Domain, asJSON
			if len(args) > 0 {
				return fmt.Errorf("found the argument %q beside --from; allowed: one of the two", args[0])
			}
			return to.withAdmin(func(a admin) error { return i.run(cmd, a) })
		}
		if i.skipBad {
			return errors.New("found --skip-bad without --from; allowed: both")
		}
		switch names := given.Plan != "" || given.Numbers != nil || given.Unlimited; {
		case given.Domain == "":
			return needsFlag(cmd, "domain")
		case !names && len(args) > 0:
			return errors.New("found none of --plan, --limit and --unlimited; allowed: one or more of them")
		}
		send := sendPatches
		if only {
			send = sendPuts
		}
		return setAll(cmd, &to, setting{given: &given, ends: ends, args: args, how: asking{dryRun: i.dryRun, strict: !force}, asJSON: asJSON, send: send})
	}
	return cmd
}

// bindForce defines the flag that has something done that would be refused.
func bindForce(fs *pflag.FlagSet, to *bool, what string) { fs.BoolVar(to, "force", false, what) }

// bindEnd defines the flags that say when something ends.
func bindEnd(cmd *cobra.Command, to *end) {
	cmd.Flags().Var(untilFlag{to}, "until", "when it ends by itself: "+allowedEnd)
	cmd.Flags().Var(spanFlag{to}, "for", "how long it holds, such as 15m, 24h or 30d")
	cmd.MarkFlagsMutuallyExclusive("until", "for")
	completeFlag(cmd, "until", cobra.NoFileCompletions)
	completeFlag(cmd, "for", cobra.NoFileCompletions)
}

// bindReason defines the flag that says why a change is made.
func bindReason(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "reason", "", "why, for the audit")
	completeFlag(cmd, "reason", cobra.NoFileCompletions)
}

// setting is what assign and block set, the same of several subjects.
type setting struct {
	given  *adminv1.Assignment // without entries and an end
	ends   end
	args   []string
	how    asking
	asJSON bool
	send   sender
}

// asking is how changes are asked for.
type asking struct {
	dryRun bool
	// strict has those refused that would do nothing for anybody. A daemon of an older
	// version makes them.
	strict bool
}

// sender sends changes to a daemon.
type sender func(context.Context, admin, []*adminv1.AssignmentPatch, asking) (answer, error)

// answer is the answer to several changes.
type answer interface {
	reached
	GetChanges() []*adminv1.AssignmentChange
}

// sendPatches has parts of assignments changed.
func sendPatches(ctx context.Context, a admin, patches []*adminv1.AssignmentPatch, how asking) (answer, error) {
	r, err := call(ctx, a, a.PatchAssignments, &adminv1.PatchAssignmentsRequest{Patches: patches, DryRun: how.dryRun, Strict: how.strict, MaxWait: a.to.maxWait})
	if status.Code(err) == codes.Unimplemented && strings.Contains(err.Error(), "unknown method") {
		err = fmt.Errorf("%w\nthe daemon is of a version that cannot change parts of assignments: upgrade it, or use the command of its version", err)
	}
	return r, checkAnswers(err, len(r.GetChanges()), len(patches))
}

// sendPuts has assignments be the whole that patches set, except blocks, or blocks alone.
func sendPuts(ctx context.Context, a admin, patches []*adminv1.AssignmentPatch, how asking) (answer, error) {
	request := &adminv1.PutAssignmentsRequest{DryRun: how.dryRun, Strict: how.strict, MaxWait: a.to.maxWait}
	for _, p := range patches {
		request.Puts = append(request.Puts, &adminv1.PutAssignment{Assignment: p.GetAssignment()})
	}
	r, err := call(ctx, a, a.PutAssignments, request)
	return r, checkAnswers(err, len(r.GetChanges()), len(patches))
}

// checkAnswers returns the error of a call, or that it has not one answer for each change.
func checkAnswers(err error, found, wanted int) error {
	if err == nil && found != wanted {
		return fmt.Errorf("the daemon tells of %d changes, where %d were asked for", found, wanted)
	}
	return err
}

func setAll(cmd *cobra.Command, to *target, p setting) error {
	if err := atLeastOne(subjectArgument)(cmd, p.args); err != nil {
		return err
	}
	until, err := p.ends.moment(time.Now())
	if err != nil {
		return err
	}
	var patches []*adminv1.AssignmentPatch
	for _, arg := range p.args {
		entries, err := parseEntries(arg)
		if err != nil {
			return err
		}
		patch := &adminv1.AssignmentPatch{Assignment: &adminv1.Assignment{
			Domain: p.given.Domain, Entries: entries, Plan: p.given.Plan, Numbers: p.given.Numbers,
			Unlimited: p.given.Unlimited, Blocked: p.given.Blocked, Reason: p.given.Reason, Until: until,
		}}
		if err := checkPatch(patch); err != nil {
			return fmt.Errorf("%s: %w", arg, err)
		}
		patches = append(patches, patch)
	}
	return to.withAdmin(func(a admin) error {
		told := changes{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), asJSON: p.asJSON, how: p.how}
		return told.change(cmd.Context(), a, patches, p.send)
	})
}

// changes tells the results of changes, and keeps what the command exits with.
type changes struct {
	out, err io.Writer
	asJSON   bool
	how      asking
	failed   bool
	// forceable is whether --force would have something done that was refused.
	forceable bool
	lacking   lacking
}

// change has changes made and tells each.
func (t *changes) change(ctx context.Context, a admin, patches []*adminv1.AssignmentPatch, send sender) error {
	answer, err := send(ctx, a, patches, t.how)
	if err != nil {
		return err
	}
	for i, c := range answer.GetChanges() {
		set := patches[i].GetAssignment()
		if err := t.tell(set.GetDomain(), set.GetEntries(), c); err != nil {
			return err
		}
	}
	t.lacking.add(answer)
	return t.end()
}

func (t *changes) tell(domain string, entries []*ratelimitv1.Entry, c *adminv1.AssignmentChange) error {
	done := succeeded(c.GetOutcome())
	t.failed = t.failed || !done
	t.forceable = t.forceable || !done && len(c.GetWarnings()) > 0
	if t.asJSON {
		return printMessage(t.out, c)
	}
	text := changeText(domain, entries, c, time.Now())
	if t.how.dryRun {
		text = "would be " + text
	}
	if !done && len(c.GetWarnings()) > 0 {
		text = strings.Join(append([]string{text}, c.GetWarnings()[1:]...), "; ") // the first is its error
	}
	if done {
		tellWarnings(t.err, subjectText(domain, entries), c.GetWarnings())
	}
	_, err := fmt.Fprintln(tableOn(t.out), spelling.Visible(text))
	return err
}

// tellWarnings tells of what is done and may not be what its maker wants.
func tellWarnings(to io.Writer, subject string, warnings []string) {
	if len(warnings) > 0 {
		fmt.Fprintln(to, spelling.Visible(fmt.Sprintf("warning: %s: %s", subject, strings.Join(warnings, "; "))))
	}
}

// useForce ends what a command says of what was refused and need not be.
const useForce = "use --force to do it all the same"

// end tells of daemons that may not have the changes, and returns what the command
// ends with.
func (t *changes) end() error {
	err := t.lacking.tell(t.err)
	if t.forceable {
		fmt.Fprintln(t.err, useForce)
	}
	if t.failed {
		return exitCode(exitError)
	}
	return err
}

func blockCommand(load func() (settings.Settings, error)) *cobra.Command {
	to := adminTarget(load)
	given := adminv1.Assignment{Blocked: true}
	var ends end
	dryRun, force, asJSON := false, false, false
	cmd := &cobra.Command{
		Use:   "block --domain D KEY=VALUE[,KEY=VALUE]...",
		Short: "Deny everything to somebody",
		Long: `Denies every request with a descriptor that begins with the entries of an
argument, at once and at all daemons, until unblock or the end that is given.
What else is assigned to them stays, and holds again once the block has ended.
Where no rule is for such descriptors, which a misspelt key may be the reason
for, it is refused, unless --force.
` + codesOfChanges,
		Example: `  ratelimitd block --domain api tenant=acme --for 24h --reason "scraping"
  ratelimitd block --domain login address=192.0.2.7 --until 2026-12-31`,
		ValidArgsFunction: completeEntries(load),
	}
	bindDomain(cmd, &given.Domain, load)
	bindEnd(cmd, &ends)
	bindReason(cmd, &given.Reason)
	bindForce(cmd.Flags(), &force, "do it though no rule is for such descriptors")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change, and change nothing")
	bindJSON(cmd.Flags(), &asJSON, "each change")
	to.bindChange(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return setAll(cmd, &to, setting{given: &given, ends: ends, args: args, how: asking{dryRun: dryRun, strict: !force}, asJSON: asJSON, send: sendPuts})
	}
	return cmd
}

func unblockCommand(load func() (settings.Settings, error)) *cobra.Command {
	to := adminTarget(load)
	domain, reason, asJSON := "", "", false
	cmd := &cobra.Command{
		Use:   "unblock --domain D KEY=VALUE[,KEY=VALUE]...",
		Short: "End a block",
		Long: `Ends the block of those with the entries of an argument, at once and at all
daemons. What else is assigned to them holds again, or what the limits files
say.
` + codesOfChanges,
		Example:           `  ratelimitd unblock --domain api tenant=acme --reason "they have stopped"`,
		Args:              atLeastOne(subjectArgument),
		ValidArgsFunction: completeEntries(load),
	}
	bindDomain(cmd, &domain, load)
	bindReason(cmd, &reason)
	bindJSON(cmd.Flags(), &asJSON, "each change")
	to.bindChange(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		subjects, err := takeOf(domain, args)
		if err != nil {
			return err
		}
		return to.withAdmin(func(a admin) error {
			told := changes{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), asJSON: asJSON}
			for _, d := range subjects.GetDescriptors() {
				request := &adminv1.DeleteAssignmentRequest{Domain: domain, Entries: d.GetEntries(), Reason: reason, Part: adminv1.Part_PART_BLOCK, MaxWait: a.to.maxWait}
				r, err := call(cmd.Context(), a, a.DeleteAssignment, request)
				if err != nil {
					return err
				}
				if err := told.tell(domain, d.GetEntries(), r.GetChange()); err != nil {
					return err
				}
				told.lacking.add(r)
			}
			return told.end()
		})
	}
	return cmd
}
