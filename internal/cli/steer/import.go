package steer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// importer makes the assignments of a file. It checks the rows of a subject as it reads
// them, and sends them to the daemon in batches. A wrong row leaves out its subject alone.
// What the store does not take stops the import; repeating an import does no harm.
type importer struct {
	path, domain   string
	dryRun, asJSON bool

	name string         // of the file, in messages
	seen map[string]int // the lines of subjects
	err  io.Writer
	sum  importSummary
}

// maxWarned is how many rows with warnings are named; the others are counted.
const maxWarned = 5

// importSummary holds the results for the subjects of a file.
type importSummary struct {
	Rows int `json:"rows"`
	// Subjects have one row for the base, one for each layer on top of it, or both. What
	// follows counts them, except for Over.
	Subjects  int `json:"subjects"`
	Created   int `json:"created"`
	Replaced  int `json:"replaced"`
	Unchanged int `json:"unchanged"`
	// Deleted ones are those for which nothing is left assigned.
	Deleted int `json:"deleted"`
	// Failed ones are as they were; Unknown ones may be in force or not.
	Failed  int `json:"failed"`
	Unknown int `json:"unknown"`
	// Over counts rows that were left out because their end is over.
	Over int `json:"over"`
	// Warned ones were made but may not be what was wanted.
	Warned int `json:"warned"`
	// DryRun says that nothing was changed.
	DryRun bool `json:"dry_run"`
}

func (i *importer) run(cmd *cobra.Command, a dial.Admin) error {
	file := cmd.InOrStdin()
	i.name = "standard input"
	if i.path != "-" {
		opened, err := os.Open(i.path)
		if err != nil {
			return fmt.Errorf("--from: %w", err)
		}
		defer opened.Close()
		file, i.name = opened, i.path
	}
	i.sum.DryRun, i.seen, i.err = i.dryRun, make(map[string]int), cmd.ErrOrStderr()
	changes, err := assigntext.ReadChanges(file, i.domain, time.Now())
	if err != nil {
		return i.wrap(err)
	}
	stopped := i.makeAll(cmd.Context(), a, changes)
	if err := i.summarize(cmd.OutOrStdout()); err != nil {
		return err
	}
	switch {
	case stopped != nil:
		return fmt.Errorf("%w\nno row after these was made; run it again: rows that are in force already stay as they are", stopped)
	case i.sum.Failed > 0:
		return cmdline.ExitCode(cmdline.ExitError)
	}
	return nil
}

// wrap adds the name of the file to an error.
func (i *importer) wrap(err error) error {
	if e := (assigntext.RowError{}); errors.As(err, &e) {
		return fmt.Errorf("%s:%w", i.name, err)
	}
	return fmt.Errorf("%s: %w", i.name, err)
}

// makeAll makes the changes of a file. Its error is what stopped it before the end.
func (i *importer) makeAll(ctx context.Context, a dial.Admin, changes *assigntext.Changes) error {
	var batch []assigntext.Change
	for {
		found, wrong, err := changes.Next()
		if errors.Is(err, io.EOF) {
			return i.send(ctx, a, batch)
		} else if err != nil {
			return errors.Join(i.send(ctx, a, batch), i.wrap(err))
		}
		i.sum.Subjects++
		i.sum.Rows += found.Rows
		i.sum.Over += found.Over
		if !i.check(&found, wrong) {
			i.sum.Failed++
			continue
		}
		if found.IsOver() {
			continue
		}
		if batch = append(batch, found); len(batch) == maxAnswered {
			if err := i.send(ctx, a, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
}

// check reports what is wrong with the rows of a change. It returns whether nothing is.
func (i *importer) check(c *assigntext.Change, wrong []assigntext.RowError) bool {
	if len(wrong) == 0 {
		subject := subjectOf(c)
		if first := i.seen[subject]; first > 0 {
			wrong = []assigntext.RowError{{Line: c.Line, Column: 1, Text: fmt.Sprintf("found %s again, the first is on line %d; allowed: its rows one below the other", subject, first)}}
		} else {
			i.seen[subject] = c.Line
		}
	}
	for _, e := range wrong {
		fmt.Fprintln(i.err, spelling.Visible(i.wrap(e).Error()))
	}
	return len(wrong) == 0
}

func subjectOf(c *assigntext.Change) string {
	return assigntext.SubjectText(c.Assignment.GetDomain(), c.Assignment.GetEntries())
}

// send makes changes in one call. Its error says that the store, or the daemon, does not
// take them now.
func (i *importer) send(ctx context.Context, a dial.Admin, batch []assigntext.Change) error {
	if len(batch) == 0 {
		return nil
	}
	patches := make([]*adminv1.AssignmentPatch, len(batch))
	for n := range batch {
		patches[n] = batch[n].AssignmentPatch
	}
	lines := fmt.Sprintf("%s, lines %d to %d", i.name, batch[0].Line, batch[len(batch)-1].Line)
	results, err := sendPatches(ctx, a, patches, asking{dryRun: i.dryRun})
	if err != nil {
		if i.dryRun || isRefusal(err) {
			i.sum.Failed += len(batch)
		} else {
			i.sum.Unknown += len(batch)
		}
		return fmt.Errorf("%s: %w", lines, err)
	}
	failed := false
	for n, c := range results {
		i.count(&batch[n], c)
		failed = failed || c.GetOutcome() == adminv1.ChangeOutcome_CHANGE_OUTCOME_FAILED || c.GetOutcome() == adminv1.ChangeOutcome_CHANGE_OUTCOME_UNKNOWN
	}
	if failed {
		return fmt.Errorf("%s: the store did not take all of them", lines)
	}
	return nil
}

// isRefusal reports whether a daemon refused a call as a whole, so that certainly nothing
// was changed.
func isRefusal(err error) bool {
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.Unimplemented, codes.ResourceExhausted:
		return true
	}
	return false
}

// count counts the result of a change, and reports one that was not made, or has warnings.
func (i *importer) count(of *assigntext.Change, c *adminv1.AssignmentChange) {
	row := fmt.Sprintf("%s:%d: %s", i.name, of.Line, subjectOf(of))
	if !succeeded(c.GetOutcome()) {
		fmt.Fprintln(i.err, spelling.Visible(fmt.Sprintf("%s: %s: %s", row, outcomeText(c.GetOutcome()), resultText(c, time.Now()))))
	}
	if len(c.GetWarnings()) > 0 {
		switch i.sum.Warned++; {
		case i.sum.Warned <= maxWarned:
			printWarnings(i.err, row, c.GetWarnings())
		case i.sum.Warned == maxWarned+1:
			fmt.Fprintln(i.err, "warning: the rows that follow with warnings are only counted")
		}
	}
	switch c.GetOutcome() {
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_CREATED:
		i.sum.Created++
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_REPLACED:
		i.sum.Replaced++
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_UNCHANGED:
		i.sum.Unchanged++
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_DELETED:
		i.sum.Deleted++
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_UNKNOWN:
		i.sum.Unknown++
	default:
		i.sum.Failed++
	}
}

// summarize prints the results for the rows.
func (i *importer) summarize(out io.Writer) error {
	if i.asJSON {
		return cmdline.WriteValue(out, i.sum)
	}
	would := ""
	if i.dryRun {
		would = "would be "
	}
	s := &i.sum
	text := yamlfile.Plural(int64(s.Rows), "row")
	if s.Subjects != s.Rows {
		text += " of " + yamlfile.Plural(int64(s.Subjects), "subject")
	}
	text += fmt.Sprintf(": %s%d created, %d replaced, %d unchanged", would, s.Created, s.Replaced, s.Unchanged)
	for n, what := range []string{"deleted", "failed", "may be in force or not", "over already and left out", "with a warning"} {
		if count := []int{s.Deleted, s.Failed, s.Unknown, s.Over, s.Warned}[n]; count > 0 {
			text += fmt.Sprintf(", %d %s", count, what)
		}
	}
	_, err := fmt.Fprintln(out, text)
	return err
}
