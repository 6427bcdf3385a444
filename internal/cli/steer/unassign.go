package steer

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// removing says which parts end.
type removing struct {
	domain, reason string
	// parts and limits name them; none are all except blocks.
	parts  []adminv1.Part
	limits []string
	// blocks says that blocks end too.
	blocks bool
}

// unassigning is a command line of unassign.
type unassigning struct {
	removing
	to                                   dial.Target
	plan, calendar, unlimited, temporary bool
	all, yes, dryRun, asJSON             bool
}

func unassignCommand(load dial.Loader) *cobra.Command {
	c := unassigning{to: dial.ToAdmin(load)}
	cmd := &cobra.Command{
		Use:   "unassign --domain D {KEY=VALUE[,KEY=VALUE]... | --all}",
		Short: "End what was assigned to customers",
		Long: `Ends what was assigned to a customer, such as tenant=acme: the parts that
--plan, --limit, --calendar and --unlimited name, with or without an end; with
--temporary all that has an end, so that the rest is in force again; or without
these everything. A block stays, which unblock ends. It does no harm if nothing
is assigned.

With --all it does so for a whole domain, and wants --yes. --dry-run shows
beforehand what would end. Blocks end too with --blocks.
` + inForce,
		Example: `  ratelimitd unassign --domain api tenant=acme --reason "contract ended"
  ratelimitd unassign --domain api tenant=acme --temporary
  ratelimitd unassign --domain api tenant=acme --limit month
  ratelimitd unassign --domain api --all --dry-run`,
		ValidArgsFunction: dial.CompleteEntries(load),
	}
	fs := cmd.Flags()
	dial.BindDomain(cmd, &c.domain, load)
	fs.BoolVar(&c.plan, "plan", false, "end the plan")
	fs.Var(assigntext.LimitValue(&c.limits), "limit", "end the numbers of this limit; may come several times")
	fs.BoolVar(&c.calendar, "calendar", false, "end the starts and the time zone of windows by calendar")
	fs.BoolVar(&c.unlimited, "unlimited", false, "end the freedom from limits")
	fs.BoolVar(&c.temporary, "temporary", false, "end all that has an end")
	fs.BoolVar(&c.all, "all", false, "for everything assigned in the domain")
	fs.BoolVar(&c.yes, "yes", false, "with --all: do it")
	fs.BoolVar(&c.blocks, "blocks", false, "with --all: end blocks too")
	fs.BoolVar(&c.dryRun, "dry-run", false, "say what would end, and change nothing")
	bindReason(cmd, &c.reason)
	cmdline.BindJSON(fs, &c.asJSON, "each change")
	c.to.Bind(fs)
	cmd.RunE = c.run
	return cmd
}

func (c *unassigning) run(cmd *cobra.Command, args []string) error {
	switch {
	case c.all && len(args) > 0:
		return fmt.Errorf("found the argument %q beside --all; allowed: one of the two", args[0])
	case c.all && !c.yes && !c.dryRun:
		return errors.New("found --all, which ends everything assigned in the domain; allowed: --dry-run, which shows what would end, or --yes")
	case c.blocks && !c.all:
		return errors.New("found --blocks without --all; allowed: both, or unblock")
	}
	for part, isNamed := range map[adminv1.Part]bool{
		adminv1.Part_PART_PLAN: c.plan, adminv1.Part_PART_CALENDAR: c.calendar, adminv1.Part_PART_UNLIMITED: c.unlimited, adminv1.Part_PART_TEMPORARY: c.temporary,
	} {
		if isNamed {
			c.parts = append(c.parts, part)
		}
	}
	slices.Sort(c.parts)
	p := changes{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), asJSON: c.asJSON, how: asking{dryRun: c.dryRun}}
	if c.all {
		return c.to.WithAdmin(func(a dial.Admin) error { return c.removeAll(cmd, a, &p) })
	}
	if err := cmdline.AtLeastOne(assigntext.SubjectArgument)(cmd, args); err != nil {
		return err
	}
	return c.removeOf(cmd, &c.to, args, &p)
}

// patch returns the change that ends the parts of a subject.
func (r *removing) patch(entries []*ratelimitv1.Entry) *adminv1.AssignmentPatch {
	p := &adminv1.AssignmentPatch{
		Assignment:   &adminv1.Assignment{Domain: r.domain, Entries: entries, Reason: r.reason},
		Remove:       slices.Clone(r.parts),
		RemoveLimits: r.limits,
	}
	if len(r.parts) == 0 && len(r.limits) == 0 {
		p.Remove = append(p.Remove, adminv1.Part_PART_TERMS)
	}
	if r.blocks {
		p.Remove = append(p.Remove, adminv1.Part_PART_BLOCK)
	}
	return p
}

// removeOf ends parts of the subjects named by arguments.
func (r *removing) removeOf(cmd *cobra.Command, to *dial.Target, args []string, p *changes) error {
	patches, err := patchesOf(args, r.patch)
	if err != nil {
		return err
	}
	return to.WithAdmin(func(a dial.Admin) error { return p.change(cmd.Context(), a, patches, sendPatches) })
}

// removal is the progress of ending all assignments of a domain.
type removal struct {
	*removing
	printed *changes
	counts  map[adminv1.ChangeOutcome]int
	// blocked is how many assignments keep a block.
	blocked int
}

// removeAll ends parts of all assignments of the domain, page by page, and prints their
// number. A dry run, and one with JSON output, prints each.
func (r *removing) removeAll(cmd *cobra.Command, a dial.Admin, p *changes) error {
	done := removal{removing: r, printed: p, counts: make(map[adminv1.ChangeOutcome]int)}
	var failed error
	list := &adminv1.ListAssignmentsRequest{Domain: r.domain}
	err := dial.EachPage(cmd.Context(), a, list, func(page []*adminv1.Assignment, _ bool) error {
		for batch := range slices.Chunk(page, maxAnswered) {
			patches := make([]*adminv1.AssignmentPatch, len(batch))
			for i, found := range batch {
				patches[i] = r.patch(found.GetEntries())
			}
			var results []*adminv1.AssignmentChange
			if results, failed = sendPatches(cmd.Context(), a, patches, p.how); failed != nil {
				return failed
			}
			if err := done.add(batch, results); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && failed == nil {
		return err
	}
	if !p.asJSON {
		if err := done.print(); err != nil {
			return err
		}
	}
	if failed != nil {
		return fmt.Errorf("%w\nnot all of it was done; run it again", failed)
	}
	dial.WarnOfUnknownDomain(cmd, a, r.domain)
	return p.end()
}

// add counts the results of a batch, and prints those that are not just counted.
func (r *removal) add(batch []*adminv1.Assignment, results []*adminv1.AssignmentChange) error {
	for i, c := range results {
		if has, _ := assigntext.Parts(c.GetAfter()); slices.Contains(has, adminv1.Part_PART_BLOCK) {
			r.blocked++
		}
		r.counts[c.GetOutcome()]++
		isPrinted := (r.printed.how.dryRun || r.printed.asJSON) && hasReplaced(c.GetOutcome())
		if isPrinted || !succeeded(c.GetOutcome()) {
			if err := r.printed.print(r.domain, batch[i].GetEntries(), c); err != nil {
				return err
			}
		}
	}
	return nil
}

// print prints how many assignments ended.
func (r *removal) print() error {
	ended := "ended"
	if r.printed.how.dryRun {
		ended = "would end"
	}
	text := fmt.Sprintf("%s of %s %s", yamlfile.Plural(int64(r.counts[adminv1.ChangeOutcome_CHANGE_OUTCOME_DELETED]), "assignment"), yamlfile.Printable(r.domain), ended)
	if n := r.counts[adminv1.ChangeOutcome_CHANGE_OUTCOME_REPLACED]; n > 0 {
		text += fmt.Sprintf(", %d in part", n)
	}
	if r.blocked > 0 {
		text += fmt.Sprintf("; %s left, which --blocks ends", yamlfile.Plural(int64(r.blocked), "block"))
	}
	_, err := fmt.Fprintln(r.printed.out, text)
	return err
}
