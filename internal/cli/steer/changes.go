package steer

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/cli/exit"
	"github.com/ratelimitd/ratelimitd/internal/cli/jsonline"
	"github.com/ratelimitd/ratelimitd/internal/cli/subjecttext"
	"github.com/ratelimitd/ratelimitd/internal/cli/terminal"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// codesOfChanges ends the help of commands that change something.
const codesOfChanges = `
Exits with 0 when it is in force at all daemons, with 4 when it is done and some
daemon may not have it in force yet, and with 1 on an error.`

// maxAnswered is a number of changes whose answer is certainly not too long.
const maxAnswered = 64

// asking is how changes are requested.
type asking struct {
	dryRun bool
	// strict refuses changes that would have no effect for anyone. Older daemons make
	// them.
	strict bool
}

// sender sends changes to a daemon.
type sender func(context.Context, dial.Admin, []*adminv1.AssignmentPatch, asking) (answer, error)

// answer is the answer to several changes.
type answer interface {
	reached
	GetChanges() []*adminv1.AssignmentChange
}

// sendPatches changes parts of assignments.
func sendPatches(ctx context.Context, a dial.Admin, patches []*adminv1.AssignmentPatch, how asking) (answer, error) {
	r, err := dial.Call(ctx, a, a.PatchAssignments, &adminv1.PatchAssignmentsRequest{Patches: patches, DryRun: how.dryRun, Strict: how.strict, MaxWait: a.MaxWait()})
	if status.Code(err) == codes.Unimplemented && strings.Contains(err.Error(), "unknown method") {
		err = fmt.Errorf("%w\nthe daemon is of a version that cannot change parts of assignments: upgrade it, or use the command of its version", err)
	}
	return r, checkAnswers(err, len(r.GetChanges()), len(patches))
}

// sendPuts replaces whole assignments by what patches set, except blocks, or replaces
// only blocks.
func sendPuts(ctx context.Context, a dial.Admin, patches []*adminv1.AssignmentPatch, how asking) (answer, error) {
	request := &adminv1.PutAssignmentsRequest{DryRun: how.dryRun, Strict: how.strict, MaxWait: a.MaxWait()}
	for _, p := range patches {
		request.Puts = append(request.Puts, &adminv1.PutAssignment{Assignment: p.GetAssignment()})
	}
	r, err := dial.Call(ctx, a, a.PutAssignments, request)
	return r, checkAnswers(err, len(r.GetChanges()), len(patches))
}

// unreadError is the error of an argument that is not a subject.
type unreadError struct{ error }

// patchesOf returns the change of each subject named by arguments. It checks them all
// before any daemon is asked.
func patchesOf(args []string, change func(entries []*ratelimitv1.Entry) *adminv1.AssignmentPatch) ([]*adminv1.AssignmentPatch, error) {
	var patches []*adminv1.AssignmentPatch
	for _, arg := range args {
		entries, err := subjecttext.Parse(arg)
		if err != nil {
			return nil, unreadError{err}
		}
		patch := change(entries)
		if err := assigntext.Check(patch); err != nil {
			return nil, fmt.Errorf("%s: %w", arg, err)
		}
		patches = append(patches, patch)
	}
	return patches, nil
}

// checkAnswers returns the error of a call, or an error if the number of answers differs
// from that of the changes.
func checkAnswers(err error, found, wanted int) error {
	if err == nil && found != wanted {
		return fmt.Errorf("the daemon tells of %d changes, where %d were asked for", found, wanted)
	}
	return err
}

// changes prints the results of changes, and keeps the exit code of the command.
type changes struct {
	out, err io.Writer
	asJSON   bool
	how      asking
	failed   bool
	// forceable tells whether --force would allow something that was refused.
	forceable bool
	lacking   lacking
}

// change makes changes and prints each result.
func (t *changes) change(ctx context.Context, a dial.Admin, patches []*adminv1.AssignmentPatch, send sender) error {
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
		return jsonline.Message(t.out, c)
	}
	text := changeText(domain, entries, c, time.Now())
	if t.how.dryRun {
		text = "would be " + text
	}
	if !done && len(c.GetWarnings()) > 0 {
		text = strings.Join(append([]string{text}, c.GetWarnings()[1:]...), "; ") // the first is its error
	}
	if done {
		tellWarnings(t.err, subjecttext.Text(domain, entries), c.GetWarnings())
	}
	_, err := fmt.Fprintln(terminal.Table(t.out), spelling.Visible(text))
	return err
}

// tellWarnings tells of things that are done but may not be what was wanted.
func tellWarnings(to io.Writer, subject string, warnings []string) {
	if len(warnings) > 0 {
		fmt.Fprintln(to, spelling.Visible(fmt.Sprintf("warning: %s: %s", subject, strings.Join(warnings, "; "))))
	}
}

// useForce ends the message about something refused that --force would allow.
const useForce = "use --force to do it all the same"

// end names daemons that may not have the changes, and returns what the command ends
// with.
func (t *changes) end() error {
	return endWith(t.err, &t.lacking, t.forceable, t.failed)
}

// endWith names daemons that may not have what was done, says what --force would do, and
// returns what the command ends with.
func endWith(to io.Writer, l *lacking, isForceable, hasFailed bool) error {
	err := l.tell(to)
	if isForceable {
		fmt.Fprintln(to, useForce)
	}
	if hasFailed {
		return exit.Code(exit.Error)
	}
	return err
}
