package steer

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// inForce ends the help of commands that change something.
const inForce = `
When it returns, the daemon that was asked decides by it; all others that reach
the store do so within 2 seconds.`

// maxAnswered is a number of changes whose answer is certainly not too long.
const maxAnswered = 64

// asking is how changes are requested.
type asking struct {
	dryRun bool
	// strict refuses changes that would have no effect for anyone.
	strict bool
}

// sender sends changes to a daemon, and returns their results.
type sender func(context.Context, dial.Admin, []*adminv1.AssignmentPatch, asking) ([]*adminv1.AssignmentChange, error)

// sendPatches changes parts of assignments.
func sendPatches(ctx context.Context, a dial.Admin, patches []*adminv1.AssignmentPatch, how asking) ([]*adminv1.AssignmentChange, error) {
	r, err := dial.Call(ctx, a, a.PatchAssignments, &adminv1.PatchAssignmentsRequest{Patches: patches, DryRun: how.dryRun, Strict: how.strict})
	return r.GetChanges(), checkAnswers(err, len(r.GetChanges()), len(patches))
}

// sendPuts replaces the whole base of assignments by what patches set, except blocks.
func sendPuts(ctx context.Context, a dial.Admin, patches []*adminv1.AssignmentPatch, how asking) ([]*adminv1.AssignmentChange, error) {
	request := &adminv1.PutAssignmentsRequest{DryRun: how.dryRun, Strict: how.strict}
	for _, p := range patches {
		request.Puts = append(request.Puts, &adminv1.PutAssignment{Assignment: p.GetAssignment()})
	}
	r, err := dial.Call(ctx, a, a.PutAssignments, request)
	return r.GetChanges(), checkAnswers(err, len(r.GetChanges()), len(patches))
}

// patchesOf returns the change of each subject named by arguments. It checks them all
// before any daemon is asked.
func patchesOf(args []string, change func(entries []*ratelimitv1.Entry) *adminv1.AssignmentPatch) ([]*adminv1.AssignmentPatch, error) {
	var patches []*adminv1.AssignmentPatch
	for _, arg := range args {
		entries, err := assigntext.ParseEntries(arg)
		if err != nil {
			return nil, err
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
		return fmt.Errorf("the daemon answered %d changes, where %d were asked for", found, wanted)
	}
	return err
}

// changes prints the results of changes, and keeps the exit code of the command.
type changes struct {
	out, err io.Writer
	asJSON   bool
	how      asking
	failed   bool
	// forceable is whether --force would allow something that was refused.
	forceable bool
}

// change makes changes and prints each result.
func (t *changes) change(ctx context.Context, a dial.Admin, patches []*adminv1.AssignmentPatch, send sender) error {
	results, err := send(ctx, a, patches, t.how)
	if err != nil {
		return err
	}
	for i, c := range results {
		set := patches[i].GetAssignment()
		if err := t.print(set.GetDomain(), set.GetEntries(), c); err != nil {
			return err
		}
		for _, note := range assigntext.Beside(set, c.GetAfter(), time.Now()) {
			fmt.Fprintln(t.err, spelling.Visible(assigntext.SubjectText(set.GetDomain(), set.GetEntries())+": "+note))
		}
	}
	return t.end()
}

// print prints the result of a change.
func (t *changes) print(domain string, entries []*ratelimitv1.Entry, c *adminv1.AssignmentChange) error {
	done := succeeded(c.GetOutcome())
	t.failed = t.failed || !done
	t.forceable = t.forceable || !done && len(c.GetWarnings()) > 0
	if t.asJSON {
		return cmdline.WriteMessage(t.out, c)
	}
	text := changeText(domain, entries, c, time.Now())
	if t.how.dryRun {
		text = "would be " + text
	}
	if !done && len(c.GetWarnings()) > 0 {
		text = strings.Join(append([]string{text}, c.GetWarnings()[1:]...), "; ") // the first is its error
	}
	if done {
		printWarnings(t.err, assigntext.SubjectText(domain, entries), c.GetWarnings())
	}
	if _, err := fmt.Fprintln(t.out, spelling.Visible(text)); err != nil || !hasReplaced(c.GetOutcome()) {
		return err
	}
	return t.printMore("before: " + assigntext.Describe(c.GetBefore(), time.Now()))
}

// printMore prints another line on a change that was printed.
func (t *changes) printMore(text string) error {
	_, err := fmt.Fprintln(t.out, "           "+spelling.Visible(text))
	return err
}

// printWarnings warns of things that are done but may not be what was wanted.
func printWarnings(to io.Writer, subject string, warnings []string) {
	if len(warnings) > 0 {
		fmt.Fprintln(to, spelling.Visible(fmt.Sprintf("warning: %s: %s", subject, strings.Join(warnings, "; "))))
	}
}

// useForce ends the message about something refused that --force would allow.
const useForce = "use --force to do it all the same"

// end returns what the command ends with.
func (t *changes) end() error { return endWith(t.err, t.forceable, t.failed) }

// endWith says what --force would do, and returns what the command ends with.
func endWith(to io.Writer, isForceable, hasFailed bool) error {
	if isForceable {
		fmt.Fprintln(to, useForce)
	}
	if hasFailed {
		return cmdline.ExitCode(cmdline.ExitError)
	}
	return nil
}
