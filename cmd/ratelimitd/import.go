package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
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

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// importer makes the assignments of a file. It reads the file twice: to find what is
// malformed before anything is done, and to do it.
type importer struct {
	path, domain    string
	skipBad, dryRun bool
	asJSON          bool

	name    string // of the file, in errors
	sum     importSummary
	lacking lacking
}

// Bounds of one call.
const (
	mostPuts     = 1000
	mostPutBytes = 512 << 10
	// mostTries is how often rows are put for which the store does not answer: to do so
	// again does no harm. tryPause is how long to wait before the second time, and
	// tryPauseMost before any.
	mostTries    = 3
	tryPause     = 500 * time.Millisecond
	tryPauseMost = 2 * time.Second
	// momentMost is for how long rows are put again that are refused for a moment: a
	// daemon that starts reads a million assignments in seconds, and a failover takes some.
	momentMost = time.Minute
	// fewPuts are so few that no answer to them is too long.
	fewPuts = 64
	// maxWarned is how many rows with warnings are named; the others are counted.
	maxWarned = 5
)

// importSummary is what became of the rows of a file.
type importSummary struct {
	Rows      int `json:"rows"`
	Created   int `json:"created"`
	Replaced  int `json:"replaced"`
	Unchanged int `json:"unchanged"`
	// Deleted are those of which nothing is left.
	Deleted int `json:"deleted"`
	// Refused rows are not valid to the daemon; Malformed ones were left out.
	Refused   int `json:"refused"`
	Malformed int `json:"malformed"`
	// Unknown rows may be in force or not; NotReached ones are as they were.
	Unknown    int `json:"unknown"`
	NotReached int `json:"not_reached"`
	// Warned rows were made and may not be what is wanted.
	Warned int `json:"warned"`
	// DryRun says that nothing was changed.
	DryRun bool `json:"dry_run"`
	// Pending are the daemons that may not have all of it in force, and UnknownFor is for
	// how many seconds there may be more, which nobody knows.
	Pending    []string `json:"pending"`
	UnknownFor float64  `json:"unknown_for,omitempty"`
}

func (i *importer) run(cmd *cobra.Command, a admin) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	file, err := i.open(cmd.InOrStdin())
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	defer file.close()
	i.sum.DryRun = i.dryRun
	bad, err := i.validate(file, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if len(bad) > 0 && !i.skipBad {
		are, them := "are", "them"
		if len(bad) == 1 {
			are, them = "is", "it"
		}
		return fmt.Errorf("%d of %d rows %s malformed, so nothing was done; mend %s, or leave %s out with --skip-bad", len(bad), i.sum.Rows, are, them, them)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	failed := i.put(ctx, a, file, bad, cmd.ErrOrStderr())
	i.sum.Malformed = len(bad)
	i.sum.NotReached = i.sum.Rows - i.sum.Malformed - i.sum.Created - i.sum.Replaced - i.sum.Unchanged - i.sum.Deleted - i.sum.Refused - i.sum.Unknown
	i.sum.Pending = slices.AppendSeq([]string{}, maps.Keys(i.lacking.pending))
	slices.Sort(i.sum.Pending)
	i.sum.UnknownFor = i.lacking.unknownFor.Seconds()
	if err := i.summarize(cmd.OutOrStdout()); err != nil {
		return err
	}
	err = i.lacking.tell(cmd.ErrOrStderr())
	switch {
	case failed != nil:
		return fmt.Errorf("%w\nnot all of it was done; run it again: rows that are in force already stay as they are", failed)
	case i.sum.Refused > 0:
		return exitCode(exitError)
	}
	return err
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

// open opens the file. What cannot be read twice, such as a pipe, is copied first.
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

// wrap names the file of an error.
func (i *importer) wrap(err error) error {
	if e := (rowError{}); errors.As(err, &e) {
		return fmt.Errorf("%s:%w", i.name, err)
	}
	return fmt.Errorf("%s: %w", i.name, err)
}

// validate tells of all malformed rows, and returns their numbers.
func (i *importer) validate(from io.Reader, stderr io.Writer) (bad map[int]bool, err error) {
	rows, err := readRows(from, i.domain)
	if err != nil {
		return nil, i.wrap(err)
	}
	bad = make(map[int]bool)
	seen := make(map[[16]byte]int) // the lines of subjects
	for {
		found, errs, err := rows.next()
		if errors.Is(err, io.EOF) {
			return bad, nil
		} else if err != nil {
			return nil, i.wrap(err)
		}
		if len(errs) == 0 {
			subject := digestOfSubject(found.Assignment)
			if first, again := seen[subject]; again {
				errs = []rowError{{found.line, 1, fmt.Sprintf("found %s again, the first is on line %d; allowed: each once", subjectText(found.GetDomain(), found.GetEntries()), first)}}
			} else {
				seen[subject] = found.line
			}
		}
		for _, e := range errs {
			fmt.Fprintln(stderr, spelling.Visible(i.wrap(e).Error()))
			bad[i.sum.Rows] = true
		}
		i.sum.Rows++
	}
}

// digestOfSubject tells subjects apart in little memory.
func digestOfSubject(a *adminv1.Assignment) [16]byte {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%d %s%s", len(a.GetDomain()), a.GetDomain(), formatEntries(a.GetEntries()))))
	return [16]byte(sum[:16])
}

// put makes the assignments of all rows that are not bad.
func (i *importer) put(ctx context.Context, a admin, from io.Reader, bad map[int]bool, stderr io.Writer) error {
	rows, err := readRows(from, i.domain)
	if err != nil {
		return i.wrap(err)
	}
	var batch []row
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
		found, errs, err := rows.next()
		if errors.Is(err, io.EOF) {
			return flush()
		} else if err != nil {
			return i.wrap(err)
		}
		if bad[n] {
			continue
		}
		if len(errs) > 0 || n >= i.sum.Rows {
			return fmt.Errorf("%s has changed while it was read", i.name)
		}
		bytes := proto.Size(found.Assignment)
		if len(batch) == mostPuts || size+bytes > mostPutBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		batch, size = append(batch, found), size+bytes
	}
}

// leftRows are those that were not made for sure.
type leftRows struct {
	unknown, failed []row
	// why the store refused those that failed, and whether that stays.
	why   string
	stays bool
}

func (l *leftRows) add(o leftRows) {
	l.unknown, l.failed = append(l.unknown, o.unknown...), append(l.failed, o.failed...)
	l.why, l.stays = orElse(l.why, o.why), l.stays || o.stays
}

// putInTries puts rows, and those again for which the store does not answer, or which it
// refuses for a moment.
func (i *importer) putInTries(ctx context.Context, a admin, batch []row, stderr io.Writer) error {
	began := time.Now()
	for try := 1; ; try++ {
		left, err := i.putBatch(ctx, a, batch, stderr)
		rows := slices.Concat(left.unknown, left.failed)
		if len(rows) == 0 && err == nil {
			return nil
		}
		switch {
		case err != nil:
		case left.stays, len(left.unknown) > 0 && try >= mostTries, time.Since(began) > momentMost:
			err = i.leftError(left)
		case try == mostTries:
			fmt.Fprintf(stderr, "%s; tries again for up to %s\n", i.leftError(left), timespan.Format(momentMost))
		}
		if err == nil {
			select {
			case <-ctx.Done():
				err = ctx.Err()
			case <-time.After(min(time.Duration(try)*tryPause, tryPauseMost)):
			}
		}
		// What was unknown once stays so if it is refused then.
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
		slices.SortFunc(rows, func(a, b row) int { return a.line - b.line })
		batch = rows
	}
}

// leftError says which rows were not made for sure, and why.
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
func (i *importer) linesOf(rows []row) string {
	first, last := rows[0].line, rows[len(rows)-1].line
	if first == last {
		return fmt.Sprintf("%s, line %d", i.name, first)
	}
	return fmt.Sprintf("%s, lines %d to %d", i.name, first, last)
}

// isRefusal reports whether a daemon has refused a call as a whole, so that surely
// nothing was changed.
func isRefusal(err error) bool {
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.Unimplemented, codes.ResourceExhausted:
		return true
	}
	return false
}

// putBatch puts rows in one call. It returns those that were not made for sure.
func (i *importer) putBatch(ctx context.Context, a admin, batch []row, stderr io.Writer) (left leftRows, _ error) {
	patches := make([]*adminv1.AssignmentPatch, len(batch))
	for n := range batch {
		patches[n] = batch[n].patch()
	}
	answer, err := sendPatches(ctx, a, patches, asking{dryRun: i.dryRun})
	if status.Code(err) == codes.ResourceExhausted && len(batch) > fewPuts {
		// The answer, which has what was in force before, would be too long.
		half := len(batch) / 2
		left, err := i.putBatch(ctx, a, batch[:half], stderr)
		if err != nil {
			return left, err
		}
		second, err := i.putBatch(ctx, a, batch[half:], stderr)
		left.add(second)
		return left, err
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", i.linesOf(batch), err)
		if i.dryRun || isRefusal(err) {
			return left, err
		}
		return leftRows{unknown: batch}, err
	}
	i.lacking.add(answer)
	for n, c := range answer.GetChanges() {
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
			fmt.Fprintln(stderr, spelling.Visible(fmt.Sprintf("%s:%d: %s: refused: %s", i.name, batch[n].line, subjectText(batch[n].GetDomain(), batch[n].GetEntries()), c.GetError())))
		case adminv1.ChangeOutcome_CHANGE_OUTCOME_FAILED:
			left.add(leftRows{failed: batch[n : n+1], why: c.GetError(), stays: !c.GetTemporary()})
		default:
			left.unknown = append(left.unknown, batch[n])
		}
	}
	return left, nil
}

// warn tells what the maker of a row should know, for the first rows.
func (i *importer) warn(of *row, warnings []string, stderr io.Writer) {
	if len(warnings) == 0 {
		return
	}
	switch i.sum.Warned++; {
	case i.sum.Warned <= maxWarned:
		tellWarnings(stderr, fmt.Sprintf("%s:%d: %s", i.name, of.line, subjectText(of.GetDomain(), of.GetEntries())), warnings)
	case i.sum.Warned == maxWarned+1:
		fmt.Fprintln(stderr, "warning: the rows that follow with warnings are only counted")
	}
}

// summarize prints what became of the rows.
func (i *importer) summarize(out io.Writer) error {
	if i.asJSON {
		return printJSON(out, i.sum)
	}
	would := ""
	if i.dryRun {
		would = "would be "
	}
	parts := []string{fmt.Sprintf("%s: %s%d created, %d replaced, %d unchanged",
		yamlfile.Plural(int64(i.sum.Rows), "row"), would, i.sum.Created, i.sum.Replaced, i.sum.Unchanged)}
	for _, p := range []struct {
		n    int
		what string
	}{
		{i.sum.Deleted, "deleted"},
		{i.sum.Refused, "refused"},
		{i.sum.Malformed, "malformed and left out"},
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
