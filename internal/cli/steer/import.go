package steer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/cli/exit"
	"github.com/ratelimitd/ratelimitd/internal/cli/jsonline"
	"github.com/ratelimitd/ratelimitd/internal/cli/subjecttext"
	"github.com/ratelimitd/ratelimitd/internal/cli/terminal"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// importer makes the assignments of a file. It reads the file twice: once to find
// malformed rows before anything is done, and once to do it.
type importer struct {
	path, domain    string
	skipBad, dryRun bool
	asJSON          bool

	name string // of the file, in errors
	now  time.Time
	sum  importSummary
}

// Bounds of one call.
const (
	maxPutBytes = 512 << 10
	// maxTries is how often rows are put if the store does not answer: repeating that
	// does no harm. tryPause is the wait before the second try, and maxTryPause the
	// longest wait.
	maxTries    = 3
	tryPause    = 500 * time.Millisecond
	maxTryPause = 2 * time.Second
	// maxRefusal is how long rows that are temporarily refused are put again: a daemon
	// that starts reads a million assignments in seconds, and a failover takes some.
	maxRefusal = time.Minute
	// maxWarned is how many rows with warnings are named; the others are counted.
	maxWarned = 5
)

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
	// Refused ones are invalid to the daemon; Malformed ones were skipped.
	Refused   int `json:"refused"`
	Malformed int `json:"malformed"`
	// Over counts rows that were skipped because their end is over.
	Over int `json:"over"`
	// Unknown ones may be in force or not; NotReached ones are unchanged.
	Unknown    int `json:"unknown"`
	NotReached int `json:"not_reached"`
	// Warned ones were made but may not be what was wanted.
	Warned int `json:"warned"`
	// DryRun says that nothing was changed.
	DryRun bool `json:"dry_run"`
}

func (i *importer) run(cmd *cobra.Command, a dial.Admin) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	file, err := i.open(cmd.InOrStdin())
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	defer file.close()
	i.sum.DryRun, i.now = i.dryRun, time.Now()
	messages := terminal.Messages(cmd.ErrOrStderr())
	bad, err := i.validate(file, messages)
	if err != nil {
		return err
	}
	if len(bad) > 0 && !i.skipBad {
		return i.malformedError(len(bad))
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	failed := i.put(ctx, a, file, bad, messages)
	i.sum.Malformed = len(bad)
	s := &i.sum
	s.NotReached += s.Subjects - s.Malformed - s.Created - s.Replaced - s.Unchanged - s.Deleted - s.Refused - s.Unknown
	if err := i.summarize(cmd.OutOrStdout()); err != nil {
		return err
	}
	switch {
	case failed != nil:
		return fmt.Errorf("%w\nnot all of it was done; run it again: rows that are in force already stay as they are", failed)
	case i.sum.Refused > 0:
		return exit.Code(exit.Error)
	}
	return nil
}

// malformedError says that nothing was done because of so many subjects with malformed
// rows.
func (i *importer) malformedError(bad int) error {
	are, them := "are", "them"
	if bad == 1 {
		are, them = "is", "it"
	}
	of := yamlfile.Plural(int64(i.sum.Subjects), "row")
	if i.sum.Subjects != i.sum.Rows {
		of = yamlfile.Plural(int64(i.sum.Subjects), "subject")
	}
	return fmt.Errorf("%d of %s %s malformed, so nothing was done; mend %s, or leave %s out with --skip-bad", bad, of, are, them, them)
}

// input is a file that can be read again.
type input struct {
	*os.File
	temporary bool
}

func (f input) close() {
	f.File.Close()
	if f.temporary {
		os.Remove(f.Name())
	}
}

// open opens the file. What cannot be read twice, such as a pipe, is first copied.
func (i *importer) open(stdin io.Reader) (input, error) {
	i.name = i.path
	from := stdin
	if i.path == "-" {
		i.name = "standard input"
	} else {
		f, err := os.Open(i.path)
		if err != nil {
			return input{}, err
		}
		info, err := f.Stat()
		if err == nil && info.Mode().IsRegular() {
			return input{File: f}, nil
		}
		defer f.Close()
		if err == nil && info.IsDir() {
			return input{}, fmt.Errorf("found the folder %s; allowed: a file of CSV or of JSON lines, or - for standard input", i.path)
		}
		from = f
	}
	f, err := os.CreateTemp("", "ratelimitd-assign-")
	if err != nil {
		return input{}, err
	}
	copied := input{f, true}
	if _, err = io.Copy(f, from); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		copied.close()
		return input{}, fmt.Errorf("copy %s: %w", i.name, err)
	}
	return copied, nil
}

// wrap adds the name of the file to an error.
func (i *importer) wrap(err error) error {
	if e := (assigntext.RowError{}); errors.As(err, &e) {
		return fmt.Errorf("%s:%w", i.name, err)
	}
	return fmt.Errorf("%s: %w", i.name, err)
}

// validate reports all malformed rows, and returns the numbers of the changes that they
// are of.
func (i *importer) validate(from io.Reader, stderr io.Writer) (bad map[int]bool, err error) {
	changes, err := assigntext.ReadChanges(from, i.domain, i.now)
	if err != nil {
		return nil, i.wrap(err)
	}
	bad = make(map[int]bool)
	seen := make(map[[16]byte]int) // the lines of subjects
	for {
		found, errs, err := changes.Next()
		if errors.Is(err, io.EOF) {
			return bad, nil
		} else if err != nil {
			return nil, i.wrap(err)
		}
		if len(errs) == 0 {
			subject := digestOfSubject(found.Assignment)
			if first, again := seen[subject]; again {
				text := fmt.Sprintf("found %s again, the first is on line %d; allowed: its rows one below the other", subjecttext.Text(found.Assignment.GetDomain(), found.Assignment.GetEntries()), first)
				errs = []assigntext.RowError{{Line: found.Line, Column: 1, Text: text}}
			} else {
				seen[subject] = found.Line
			}
		}
		for _, e := range errs {
			fmt.Fprintln(stderr, spelling.Visible(i.wrap(e).Error()))
			bad[i.sum.Subjects] = true
		}
		i.sum.Subjects++
		i.sum.Rows += found.Rows
	}
}

// digestOfSubject identifies a subject in little memory.
func digestOfSubject(a *adminv1.Assignment) [16]byte {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%d %s%s", len(a.GetDomain()), a.GetDomain(), subjecttext.Format(a.GetEntries()))))
	return [16]byte(sum[:16])
}

// put makes all changes that are not bad.
func (i *importer) put(ctx context.Context, a dial.Admin, from io.Reader, bad map[int]bool, stderr io.Writer) error {
	changes, err := assigntext.ReadChanges(from, i.domain, i.now)
	if err != nil {
		return i.wrap(err)
	}
	var batch []putRow
	size := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		err := i.putInTries(ctx, a, batch, stderr)
		batch, size = batch[:0], 0
		return err
	}
	for n := 0; ; n++ {
		found, errs, err := changes.Next()
		if errors.Is(err, io.EOF) {
			return flush()
		} else if err != nil {
			return i.wrap(err)
		}
		if bad[n] {
			continue
		}
		if len(errs) > 0 || n >= i.sum.Subjects {
			return fmt.Errorf("%s has changed while it was read", i.name)
		}
		if i.sum.Over += found.Over; found.IsOver() {
			i.sum.NotReached--
			continue
		}
		bytes := proto.Size(found.AssignmentPatch)
		if len(batch) == dial.MaxPage || size+bytes > maxPutBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		batch, size = append(batch, putRow{Change: found}), size+bytes
	}
}

// putRow is the rows of a subject to put.
type putRow struct {
	assigntext.Change
	// mayBeMade says that the store did not answer an earlier put of it.
	mayBeMade bool
}

func (r *putRow) subject() string {
	return subjecttext.Text(r.Assignment.GetDomain(), r.Assignment.GetEntries())
}

// leftRows are the rows that were not certainly made.
type leftRows struct {
	unknown, failed []putRow
	// why the store refused those that failed, and whether that is permanent.
	why   string
	stays bool
}

func (l *leftRows) add(o leftRows) {
	l.unknown, l.failed = append(l.unknown, o.unknown...), append(l.failed, o.failed...)
	l.why, l.stays = cmp.Or(l.why, o.why), l.stays || o.stays
}

// putInTries puts rows, and repeats those for which the store does not answer, or which
// it temporarily refuses.
func (i *importer) putInTries(ctx context.Context, a dial.Admin, batch []putRow, stderr io.Writer) error {
	began := time.Now()
	for try := 1; ; try++ {
		left, err := i.putBatch(ctx, a, batch, stderr)
		rows := slices.Concat(left.unknown, left.failed)
		if len(rows) == 0 && err == nil {
			return nil
		}
		switch {
		case err != nil:
		case left.stays, len(left.unknown) > 0 && try >= maxTries, time.Since(began) > maxRefusal:
			err = i.leftError(left)
		case try == maxTries:
			fmt.Fprintf(stderr, "%s; tries again for up to %s\n", i.leftError(left), timespan.Format(maxRefusal))
		}
		if err == nil {
			err = pauseAfter(ctx, try)
		}
		// What was once unknown remains so if it is then refused.
		for n := range left.unknown {
			rows[n].mayBeMade = true
		}
		if err != nil {
			if len(rows) == 0 {
				rows = batch // the call was refused
			}
			for _, r := range rows {
				if r.mayBeMade {
					i.sum.Unknown++
				}
			}
			return err
		}
		slices.SortFunc(rows, func(a, b putRow) int { return a.Line - b.Line })
		batch = rows
	}
}

// pauseAfter waits until the next try, or until ctx ends.
func pauseAfter(ctx context.Context, try int) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(min(time.Duration(try)*tryPause, maxTryPause)):
		return nil
	}
}

// leftError says which rows were not certainly made, and why.
func (i *importer) leftError(left leftRows) error {
	var errs []error
	if n := len(left.unknown); n > 0 {
		errs = append(errs, fmt.Errorf("%s: the store did not answer for %s", i.linesOf(left.unknown), yamlfile.Plural(int64(n), "row")))
	}
	if n := len(left.failed); n > 0 {
		errs = append(errs, fmt.Errorf("%s: %s: %s", i.linesOf(left.failed), yamlfile.Plural(int64(n), "row"), left.why))
	}
	return errors.Join(errs...)
}

// linesOf names the lines of rows.
func (i *importer) linesOf(rows []putRow) string {
	first, last := rows[0].Line, rows[len(rows)-1].Line
	if first == last {
		return fmt.Sprintf("%s, line %d", i.name, first)
	}
	return fmt.Sprintf("%s, lines %d to %d", i.name, first, last)
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

// putBatch puts rows in one call. It returns those that were not certainly made.
func (i *importer) putBatch(ctx context.Context, a dial.Admin, batch []putRow, stderr io.Writer) (left leftRows, _ error) {
	patches := make([]*adminv1.AssignmentPatch, len(batch))
	for n := range batch {
		patches[n] = batch[n].AssignmentPatch
	}
	answer, err := sendPatches(ctx, a, patches, asking{dryRun: i.dryRun})
	if status.Code(err) == codes.ResourceExhausted && len(batch) > maxAnswered {
		// The answer, which includes what was in force before, would be too long.
		return i.putHalves(ctx, a, batch, stderr)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", i.linesOf(batch), err)
		if i.dryRun || isRefusal(err) {
			return left, err
		}
		return leftRows{unknown: batch}, err
	}
	return i.count(batch, answer, stderr), nil
}

// putHalves puts rows in two calls.
func (i *importer) putHalves(ctx context.Context, a dial.Admin, batch []putRow, stderr io.Writer) (leftRows, error) {
	half := len(batch) / 2
	left, err := i.putBatch(ctx, a, batch[:half], stderr)
	if err != nil {
		return left, err
	}
	second, err := i.putBatch(ctx, a, batch[half:], stderr)
	left.add(second)
	return left, err
}

// count counts the results of rows, and reports refused ones. It returns those that were
// not certainly made.
func (i *importer) count(batch []putRow, results []*adminv1.AssignmentChange, stderr io.Writer) (left leftRows) {
	for n, c := range results {
		i.warn(&batch[n], c.GetWarnings(), stderr)
		switch c.GetOutcome() {
		case adminv1.ChangeOutcome_CHANGE_OUTCOME_CREATED:
			i.sum.Created++
		case adminv1.ChangeOutcome_CHANGE_OUTCOME_REPLACED:
			i.sum.Replaced++
		case adminv1.ChangeOutcome_CHANGE_OUTCOME_UNCHANGED:
			i.sum.Unchanged++
		case adminv1.ChangeOutcome_CHANGE_OUTCOME_DELETED:
			i.sum.Deleted++
		case adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED, adminv1.ChangeOutcome_CHANGE_OUTCOME_CONFLICT:
			i.sum.Refused++
			fmt.Fprintln(stderr, spelling.Visible(fmt.Sprintf("%s:%d: %s: refused: %s", i.name, batch[n].Line, batch[n].subject(), c.GetError())))
		case adminv1.ChangeOutcome_CHANGE_OUTCOME_FAILED:
			left.add(leftRows{failed: batch[n : n+1], why: c.GetError(), stays: !c.GetTemporary()})
		default:
			left.unknown = append(left.unknown, batch[n])
		}
	}
	return left
}

// warn prints what the author of a row should know, for the first rows.
func (i *importer) warn(of *putRow, warnings []string, stderr io.Writer) {
	if len(warnings) == 0 {
		return
	}
	switch i.sum.Warned++; {
	case i.sum.Warned <= maxWarned:
		printWarnings(stderr, fmt.Sprintf("%s:%d: %s", i.name, of.Line, of.subject()), warnings)
	case i.sum.Warned == maxWarned+1:
		fmt.Fprintln(stderr, "warning: the rows that follow with warnings are only counted")
	}
}

// summarize prints the results for the rows.
func (i *importer) summarize(out io.Writer) error {
	if i.asJSON {
		return jsonline.Value(out, i.sum)
	}
	would := ""
	if i.dryRun {
		would = "would be "
	}
	rows := yamlfile.Plural(int64(i.sum.Rows), "row")
	if i.sum.Subjects != i.sum.Rows {
		rows += " of " + yamlfile.Plural(int64(i.sum.Subjects), "subject")
	}
	parts := []string{fmt.Sprintf("%s: %s%d created, %d replaced, %d unchanged", rows, would, i.sum.Created, i.sum.Replaced, i.sum.Unchanged)}
	for _, p := range []struct {
		n    int
		what string
	}{
		{i.sum.Deleted, "deleted"},
		{i.sum.Refused, "refused"},
		{i.sum.Malformed, "malformed and left out"},
		{i.sum.Over, "over already and left out"},
		{i.sum.Warned, "with a warning"},
		{i.sum.Unknown, "may be in force or not"},
		{i.sum.NotReached, "not reached"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	_, err := fmt.Fprintln(out, strings.Join(parts, ", "))
	return err
}
