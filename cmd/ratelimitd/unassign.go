package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// removing says which parts end: those that are named, or all but blocks.
type removing struct {
	domain, reason string
	plan           bool
	unlimited      bool
	limits         []string
	blocks         bool
}

func unassignCommand(load func() (settings.Settings, error)) *cobra.Command {
	to := adminTarget(load)
	var r removing
	all, dryRun, asJSON := false, false, false
	cmd := &cobra.Command{
		Use:   "unassign --domain D {KEY=VALUE[,KEY=VALUE]... | --all}",
		Short: "End what was assigned to customers",
		Long: `Ends what was assigned to a customer, such as tenant=acme, at once and at all
daemons: the parts that --plan, --limit and --unlimited name, or without these
all but a block, which unblock ends. What the limits files say holds again. It
does no harm where nothing is assigned.

With --all it does so for all of a domain, without a question. --dry-run shows
beforehand what would end. Blocks end too with --blocks.
` + codesOfChanges,
		Example: `  ratelimitd unassign --domain api tenant=acme --reason "contract ended"
  ratelimitd unassign --domain api tenant=acme --limit month
  ratelimitd unassign --domain api --all --dry-run`,
		ValidArgsFunction: completeEntries(load),
	}
	fs := cmd.Flags()
	bindDomain(cmd, &r.domain, load)
	fs.BoolVar(&r.plan, "plan", false, "end the plan")
	fs.Var(limitFlag{&r.limits}, "limit", "end the numbers of this limit; may come several times")
	completeFlag(cmd, "limit", completeLimit(load, ""))
	fs.BoolVar(&r.unlimited, "unlimited", false, "end the freedom from limits")
	fs.BoolVar(&all, "all", false, "of all that have something assigned in the domain")
	fs.BoolVar(&r.blocks, "blocks", false, "with --all: end blocks too")
	fs.BoolVar(&dryRun, "dry-run", false, "say what would end, and change nothing")
	bindReason(cmd, &r.reason)
	bindJSON(fs, &asJSON, "each change")
	to.bindChange(fs)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case all && len(args) > 0:
			return fmt.Errorf("found the argument %q beside --all; allowed: one of the two", args[0])
		case r.blocks && !all:
			return errors.New("found --blocks without --all; allowed: both, or unblock")
		}
		told := changes{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), asJSON: asJSON, how: asking{dryRun: dryRun}}
		if all {
			return to.withAdmin(func(a admin) error { return r.removeAll(cmd, a, &told) })
		}
		if err := atLeastOne(subjectArgument)(cmd, args); err != nil {
			return err
		}
		return r.removeOf(cmd, &to, args, &told)
	}
	return cmd
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

func (r *removing) namesParts() bool { return r.plan || r.unlimited || len(r.limits) > 0 }

// removeOf ends parts of the subjects that arguments name.
func (r *removing) removeOf(cmd *cobra.Command, to *target, args []string, told *changes) error {
	var patches []*adminv1.AssignmentPatch
	for _, arg := range args {
		entries, err := parseEntries(arg)
		switch {
		case err != nil && r.plan:
			return fmt.Errorf("%w. --plan names no plan here: it ends the one that is assigned", err)
		case err != nil:
			return err
		}
		patch := r.patch(entries)
		if err := checkPatch(patch); err != nil {
			return fmt.Errorf("%s: %w", arg, err)
		}
		patches = append(patches, patch)
	}
	return to.withAdmin(func(a admin) error {
		return told.change(cmd.Context(), a, patches, func(ctx context.Context, a admin, patches []*adminv1.AssignmentPatch, how asking) (answer, error) {
			answer, err := sendPatches(ctx, a, patches, how)
			for i, c := range answer.GetChanges() {
				r.tellAbsent(told.err, patches[i].GetAssignment().GetEntries(), c)
			}
			return answer, err
		})
	})
}

// tellAbsent says which of the parts that were to end were not there: a limit's name may
// be misspelt.
func (r *removing) tellAbsent(to io.Writer, entries []*ratelimitv1.Entry, c *adminv1.AssignmentChange) {
	before := c.GetBefore()
	if !succeeded(c.GetOutcome()) || !r.namesParts() {
		return
	}
	subject := subjectText(r.domain, entries)
	if r.plan && before.GetPlan() == "" {
		fmt.Fprintln(to, spelling.Visible(subject+" had no plan assigned"))
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
		text := fmt.Sprintf("%s had no numbers of %s", subject, limitNames([]string{limit}))
		if len(has) > 0 {
			text += ", but of " + limitNames(has)
		}
		fmt.Fprintln(to, spelling.Visible(text))
	}
}

// hasSome reports whether an assignment has any of the parts.
func (r *removing) hasSome(a *adminv1.Assignment) bool {
	isNamed := func(n *adminv1.AssignedNumbers) bool { return slices.Contains(r.limits, n.GetLimit()) }
	if r.namesParts() {
		return r.plan && a.GetPlan() != "" || r.unlimited && a.GetUnlimited() || slices.ContainsFunc(a.GetNumbers(), isNamed) || r.blocks && a.GetBlocked()
	}
	return r.blocks || a.GetPlan() != "" || a.GetUnlimited() || len(a.GetNumbers()) > 0
}

// removeAll ends parts of all assignments of the domain, page by page, and says how many
// they were. A dry run, and one whose result is JSON, tells each.
func (r *removing) removeAll(cmd *cobra.Command, a admin, told *changes) error {
	counts := map[adminv1.ChangeOutcome]int{}
	blocked, failed := 0, error(nil)
	list := &adminv1.ListAssignmentsRequest{Domain: r.domain, PageSize: mostPuts}
	err := eachPage(cmd.Context(), a, list, func(page []*adminv1.Assignment, _ bool) error {
		var patches []*adminv1.AssignmentPatch
		for _, found := range page {
			if found.GetBlocked() && !r.blocks {
				blocked++
			}
			if r.hasSome(found) {
				patches = append(patches, r.patch(found.GetEntries()))
			}
		}
		// Few at once, so that no answer is too long.
		for batch := range slices.Chunk(patches, fewPuts) {
			answer, err := sendPatches(cmd.Context(), a, batch, told.how)
			if err != nil {
				failed = err
				return err
			}
			told.lacking.add(answer)
			for i, c := range answer.GetChanges() {
				counts[c.GetOutcome()]++
				if told.how.dryRun || told.asJSON || !succeeded(c.GetOutcome()) {
					if err := told.tell(r.domain, batch[i].GetAssignment().GetEntries(), c); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
	if err != nil && failed == nil {
		return err
	}
	if !told.asJSON {
		if err := r.tellCounts(told, counts, blocked); err != nil {
			return err
		}
	}
	if failed != nil {
		return fmt.Errorf("%w\nnot all of it was done; run it again", failed)
	}
	tellUnknownDomain(cmd, a, r.domain)
	return told.end()
}

// tellCounts says how many assignments ended.
func (r *removing) tellCounts(told *changes, counts map[adminv1.ChangeOutcome]int, blocked int) error {
	ended := "ended"
	if told.how.dryRun {
		ended = "would end"
	}
	text := fmt.Sprintf("%s of %s %s", yamlfile.Plural(int64(counts[adminv1.ChangeOutcome_CHANGE_OUTCOME_DELETED]), "assignment"), yamlfile.Printable(r.domain), ended)
	if n := counts[adminv1.ChangeOutcome_CHANGE_OUTCOME_REPLACED]; n > 0 {
		text += fmt.Sprintf(", %d in part", n)
	}
	if blocked > 0 {
		text += fmt.Sprintf("; %s left, which --blocks ends", yamlfile.Plural(int64(blocked), "block"))
	}
	_, err := fmt.Fprintln(told.out, text)
	return err
}

// limitFlag is a flag that names a limit, and may come several times.
type limitFlag struct{ to *[]string }

func (f limitFlag) String() string  { return "" }
func (f limitFlag) Type() string    { return "name" }
func (f limitFlag) allowed() string { return "the name of a limit, such as month" }

func (f limitFlag) Set(text string) error {
	if _, _, hasNumbers := cutUnescaped(text, '='); hasNumbers {
		return errors.New("not " + f.allowed())
	}
	*f.to = append(*f.to, spelling.ParsePart(text))
	return nil
}
