package steer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/complete"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/cli/flags"
	"github.com/ratelimitd/ratelimitd/internal/cli/jsonline"
	"github.com/ratelimitd/ratelimitd/internal/cli/subjecttext"
	"github.com/ratelimitd/ratelimitd/internal/cli/terminal"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// removing says which parts end: the named ones, or all except blocks.
type removing struct {
	domain, reason string
	plan           bool
	calendar       bool
	unlimited      bool
	limits         []string
	blocks         bool
}

// unassigning is a command line of unassign.
type unassigning struct {
	removing
	to                  dial.Target
	all, dryRun, asJSON bool
}

func unassignCommand(load dial.Loader) *cobra.Command {
	c := unassigning{to: dial.ToAdmin(load)}
	cmd := &cobra.Command{
		Use:   "unassign --domain D {KEY=VALUE[,KEY=VALUE]... | --all}",
		Short: "End what was assigned to customers",
		Long: `Ends what was assigned to a customer, such as tenant=acme, at once and at all
daemons: the parts that --plan, --limit, --calendar and --unlimited name, or
without these everything except a block, which unblock ends. The limits files
apply again. It does no harm if nothing is assigned.

With --all it does so for a whole domain, without asking. --dry-run shows
beforehand what would end. Blocks end too with --blocks.
` + codesOfChanges,
		Example: `  ratelimitd unassign --domain api tenant=acme --reason "contract ended"
  ratelimitd unassign --domain api tenant=acme --limit month
  ratelimitd unassign --domain api --all --dry-run`,
		ValidArgsFunction: complete.Entries(load),
	}
	fs := cmd.Flags()
	complete.BindDomain(cmd, &c.domain, load)
	fs.BoolVar(&c.plan, "plan", false, "end the plan")
	fs.Var(assigntext.LimitValue(&c.limits), "limit", "end the numbers of this limit; may come several times")
	flags.Complete(cmd, "limit", complete.Limit(load, ""))
	fs.BoolVar(&c.calendar, "calendar", false, "end the starts and the time zone of windows by calendar")
	fs.BoolVar(&c.unlimited, "unlimited", false, "end the freedom from limits")
	fs.BoolVar(&c.all, "all", false, "for everything assigned in the domain")
	fs.BoolVar(&c.blocks, "blocks", false, "with --all: end blocks too")
	fs.BoolVar(&c.dryRun, "dry-run", false, "say what would end, and change nothing")
	bindReason(cmd, &c.reason)
	jsonline.Bind(fs, &c.asJSON, "each change")
	c.to.BindChange(fs)
	cmd.RunE = c.run
	return cmd
}

func (c *unassigning) run(cmd *cobra.Command, args []string) error {
	switch {
	case c.all && len(args) > 0:
		return fmt.Errorf("found the argument %q beside --all; allowed: one of the two", args[0])
	case c.blocks && !c.all:
		return errors.New("found --blocks without --all; allowed: both, or unblock")
	}
	told := changes{out: cmd.OutOrStdout(), err: terminal.Messages(cmd.ErrOrStderr()), asJSON: c.asJSON, how: asking{dryRun: c.dryRun}}
	if c.all {
		return c.to.WithAdmin(func(a dial.Admin) error { return c.removeAll(cmd, a, &told) })
	}
	if err := cmdline.AtLeastOne(subjecttext.Argument)(cmd, args); err != nil {
		return err
	}
	return c.removeOf(cmd, &c.to, args, &told)
}

// patch returns the change that ends the parts of a subject.
func (r *removing) patch(entries []*ratelimitv1.Entry) *adminv1.AssignmentPatch {
	p := &adminv1.AssignmentPatch{
		Assignment:   &adminv1.Assignment{Domain: r.domain, Entries: entries, Reason: r.reason},
		RemoveLimits: r.limits,
	}
	if r.plan {
		p.Remove = append(p.Remove, adminv1.Part_PART_PLAN)
	}
	if r.calendar {
		p.Remove = append(p.Remove, adminv1.Part_PART_CALENDAR)
	}
	if r.unlimited {
		p.Remove = append(p.Remove, adminv1.Part_PART_UNLIMITED)
	}
	if !r.namesParts() {
		p.Remove = append(p.Remove, adminv1.Part_PART_TERMS)
	}
	if r.blocks {
		p.Remove = append(p.Remove, adminv1.Part_PART_BLOCK)
	}
	return p
}

func (r *removing) namesParts() bool { return r.plan || r.calendar || r.unlimited || len(r.limits) > 0 }

// removeOf ends parts of the subjects named by arguments.
func (r *removing) removeOf(cmd *cobra.Command, to *dial.Target, args []string, told *changes) error {
	patches, err := patchesOf(args, r.patch)
	switch {
	case errors.As(err, new(unreadError)) && r.plan:
		return fmt.Errorf("%w. --plan names no plan here: it ends the one that is assigned", err)
	case err != nil:
		return err
	}
	return to.WithAdmin(func(a dial.Admin) error { return told.change(cmd.Context(), a, patches, r.send(told.err)) })
}

// send returns a sender that works like sendPatches and reports what did not exist.
func (r *removing) send(to io.Writer) sender {
	return func(ctx context.Context, a dial.Admin, patches []*adminv1.AssignmentPatch, how asking) (answer, error) {
		answer, err := sendPatches(ctx, a, patches, how)
		for i, c := range answer.GetChanges() {
			r.tellAbsent(to, patches[i].GetAssignment().GetEntries(), c)
		}
		return answer, err
	}
}

// tellAbsent says which of the parts to end did not exist: a limit's name may be
// misspelled.
func (r *removing) tellAbsent(to io.Writer, entries []*ratelimitv1.Entry, c *adminv1.AssignmentChange) {
	before := c.GetBefore()
	if !succeeded(c.GetOutcome()) || !r.namesParts() {
		return
	}
	subject := subjecttext.Text(r.domain, entries)
	if r.plan && before.GetPlan() == "" {
		fmt.Fprintln(to, spelling.Visible(subject+" had no plan assigned"))
	}
	if r.calendar && before.GetCalendar() == nil {
		fmt.Fprintln(to, spelling.Visible(subject+" had no calendar assigned"))
	}
	if r.unlimited && !before.GetUnlimited() {
		fmt.Fprintln(to, spelling.Visible(subject+" was not unlimited"))
	}
	var has []string
	for _, n := range before.GetNumbers() {
		has = append(has, n.GetLimit())
	}
	for _, limit := range r.limits {
		if slices.Contains(has, limit) {
			continue
		}
		text := fmt.Sprintf("%s had no numbers of %s", subject, assigntext.LimitNames([]string{limit}))
		if len(has) > 0 {
			text += ", but of " + assigntext.LimitNames(has)
		}
		fmt.Fprintln(to, spelling.Visible(text))
	}
}

// hasSome reports whether an assignment has any of the parts.
func (r *removing) hasSome(a *adminv1.Assignment) bool {
	isNamed := func(n *adminv1.AssignedNumbers) bool { return slices.Contains(r.limits, n.GetLimit()) }
	if r.namesParts() {
		return r.plan && a.GetPlan() != "" || r.calendar && a.GetCalendar() != nil || r.unlimited && a.GetUnlimited() || slices.ContainsFunc(a.GetNumbers(), isNamed) || r.blocks && a.GetBlocked()
	}
	return r.blocks || a.GetPlan() != "" || a.GetUnlimited() || len(a.GetNumbers()) > 0 || a.GetCalendar() != nil
}

// removal is the progress of ending all assignments of a domain.
type removal struct {
	*removing
	told   *changes
	counts map[adminv1.ChangeOutcome]int
	// blocked is how many assignments keep a block.
	blocked int
}

// removeAll ends parts of all assignments of the domain, page by page, and prints their
// number. A dry run, and one with JSON output, prints each.
func (r *removing) removeAll(cmd *cobra.Command, a dial.Admin, told *changes) error {
	done := removal{removing: r, told: told, counts: make(map[adminv1.ChangeOutcome]int)}
	var failed error
	list := &adminv1.ListAssignmentsRequest{Domain: r.domain}
	if !told.how.dryRun {
		// What comes before it is then listed, and what comes after it lacks the parts.
		if err := r.removeRest(cmd.Context(), a, told); err != nil {
			return err
		}
	}
	err := dial.EachPage(cmd.Context(), a, list, func(page []*adminv1.Assignment, _ bool) error {
		// Few at a time, so that no answer is too long.
		for batch := range slices.Chunk(done.patches(page), maxAnswered) {
			answer, err := sendPatches(cmd.Context(), a, batch, told.how)
			if err != nil {
				failed = err
				return err
			}
			if err := done.add(batch, answer); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && failed == nil {
		return err
	}
	if !told.asJSON {
		if err := done.tell(); err != nil {
			return err
		}
	}
	if failed != nil {
		return fmt.Errorf("%w\nnot all of it was done; run it again", failed)
	}
	dial.TellUnknownDomain(cmd, a, r.domain)
	return told.end()
}

// removeRest ends the parts of what may be brought back by a daemon that was stopped
// while Redis lost assignments.
func (r *removing) removeRest(ctx context.Context, a dial.Admin, told *changes) error {
	patch := r.patch(nil)
	patch.RestOfDomain = true
	answer, err := sendPatches(ctx, a, []*adminv1.AssignmentPatch{patch}, told.how)
	if err != nil {
		return err
	}
	told.lacking.add(answer)
	for _, c := range answer.GetChanges() {
		// An older daemon, which refuses it, brings back everything.
		if o := c.GetOutcome(); !succeeded(o) && o != adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED {
			return errors.New(cmp.Or(c.GetError(), "the store did not answer for all of it; run it again"))
		}
	}
	return nil
}

// patches returns the changes that end the parts of the assignments of a page.
func (r *removal) patches(page []*adminv1.Assignment) (patches []*adminv1.AssignmentPatch) {
	for _, found := range page {
		if found.GetBlocked() && !r.blocks {
			r.blocked++
		}
		if r.hasSome(found) {
			patches = append(patches, r.patch(found.GetEntries()))
		}
	}
	return patches
}

// add counts the results of a batch, and prints those that are not just counted.
func (r *removal) add(batch []*adminv1.AssignmentPatch, answer answer) error {
	r.told.lacking.add(answer)
	for i, c := range answer.GetChanges() {
		r.counts[c.GetOutcome()]++
		if r.told.how.dryRun || r.told.asJSON || !succeeded(c.GetOutcome()) {
			if err := r.told.tell(r.domain, batch[i].GetAssignment().GetEntries(), c); err != nil {
				return err
			}
		}
	}
	return nil
}

// tell prints how many assignments ended.
func (r *removal) tell() error {
	ended := "ended"
	if r.told.how.dryRun {
		ended = "would end"
	}
	text := fmt.Sprintf("%s of %s %s", yamlfile.Plural(int64(r.counts[adminv1.ChangeOutcome_CHANGE_OUTCOME_DELETED]), "assignment"), yamlfile.Printable(r.domain), ended)
	if n := r.counts[adminv1.ChangeOutcome_CHANGE_OUTCOME_REPLACED]; n > 0 {
		text += fmt.Sprintf(", %d in part", n)
	}
	if r.blocked > 0 {
		text += fmt.Sprintf("; %s left, which --blocks ends", yamlfile.Plural(int64(r.blocked), "block"))
	}
	_, err := fmt.Fprintln(r.told.out, text)
	return err
}
