package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// checkPatch returns what is wrong with a change of an assignment before any daemon is
// asked, a line for each mistake, or nil.
func checkPatch(p *adminv1.AssignmentPatch) error {
	set, err := assignmentOf(p.GetAssignment())
	if err != nil {
		return err
	}
	c := assign.Change{Assignment: set}
	c.Remove.Limits = p.GetRemoveLimits()
	c.Remove.Rest = len(p.GetRemove()) > 0 // whichever parts they are
	if p.GetAssignment().Until != nil && !c.Sets() {
		return errors.New("until: found it without a part that it would end; allowed: both")
	}
	return c.Check()
}

// assignmentOf reads an assignment. Its error says what in it cannot be read.
func assignmentOf(a *adminv1.Assignment) (assign.Assignment, error) {
	own := assign.Assignment{
		Subject: assign.Subject{Domain: a.GetDomain()},
		Terms:   assign.Terms{Plan: a.GetPlan(), Unlimited: a.GetUnlimited(), Blocked: a.GetBlocked()},
		Reason:  a.GetReason(),
	}
	for _, e := range a.GetEntries() {
		own.Entries = append(own.Entries, bucket.Entry{Key: e.GetKey(), Value: e.GetValue()})
	}
	for i, n := range a.GetNumbers() {
		if n.Period != nil && n.GetPeriod().AsDuration() <= 0 {
			return own, fmt.Errorf("numbers: a period of %s, where a positive one is needed", n.GetPeriod().AsDuration())
		}
		until, err := endOf(fmt.Sprintf("numbers[%d].until", i), n.Until)
		if err != nil {
			return own, err
		}
		own.Numbers = append(own.Numbers, assign.Numbers{
			Limit: n.GetLimit(), Requests: int64(n.GetRequests()), Period: n.GetPeriod().AsDuration(), Burst: int64(n.GetBurst()),
		})
		own.NumbersUntil = append(own.NumbersUntil, until)
	}
	var rest int64
	for _, e := range []struct {
		where string
		from  *timestamppb.Timestamp
		to    *int64
	}{
		{where: "until", from: a.Until, to: &rest},
		{where: "plan_until", from: a.PlanUntil, to: &own.PlanUntil},
		{where: "unlimited_until", from: a.UnlimitedUntil, to: &own.UnlimitedUntil},
		{where: "blocked_until", from: a.BlockedUntil, to: &own.BlockedUntil},
	} {
		var err error
		if *e.to, err = endOf(e.where, e.from); err != nil {
			return own, err
		}
	}
	own.EndRest(rest)
	return own, nil
}

// endOf returns when something ends, in microseconds since the Unix epoch.
func endOf(where string, m *timestamppb.Timestamp) (int64, error) {
	if m == nil {
		return 0, nil
	}
	if !m.IsValid() {
		return 0, errors.New(where + ": no moment")
	}
	micros := m.AsTime().UnixMicro()
	if micros <= 0 || micros > assign.MaxMoment {
		return 0, fmt.Errorf("%s: found %s; allowed: a moment after 1970, up to %s", where, m.AsTime().Format(momentText), time.UnixMicro(assign.MaxMoment).UTC().Format(time.DateOnly))
	}
	return micros, nil
}

// orUntil returns the end of a part, or that of all parts where it has none of its own.
func orUntil(end *timestamppb.Timestamp, a *adminv1.Assignment) *timestamppb.Timestamp {
	if end == nil {
		return a.Until
	}
	return end
}

// describeAssignment says in words what is assigned, part by part; nil is nothing.
func describeAssignment(a *adminv1.Assignment, now time.Time) string {
	if a == nil {
		return "nothing assigned"
	}
	a = withOwnEnds(a)
	var parts []string
	add := func(text string, until *timestamppb.Timestamp) {
		if until != nil {
			text += " until " + untilText(until, now)
		}
		parts = append(parts, text)
	}
	if a.GetBlocked() {
		add("blocked", a.BlockedUntil)
	}
	if a.GetUnlimited() {
		add("unlimited", a.UnlimitedUntil)
	}
	if a.GetPlan() != "" {
		add("plan "+yamlfile.Printable(a.GetPlan()), a.PlanUntil)
	}
	for _, n := range a.GetNumbers() {
		add("limit "+formatNumbers([]*adminv1.AssignedNumbers{n}), n.Until)
	}
	text := strings.Join(parts, ", ")
	if a.GetReason() != "" {
		text += fmt.Sprintf(" (reason: %q)", a.GetReason())
	}
	return text
}

// subjectText names a subject, whose entries can be pasted into a command.
func subjectText(domain string, entries []*ratelimitv1.Entry) string {
	return subjectWord(entries) + " of " + yamlfile.Printable(domain)
}

// outcomeText is the word for what became of a change.
func outcomeText(o adminv1.ChangeOutcome) string {
	return strings.ToLower(strings.TrimPrefix(o.String(), "CHANGE_OUTCOME_"))
}

// changeText says what became of a change.
func changeText(domain string, entries []*ratelimitv1.Entry, c *adminv1.AssignmentChange, now time.Time) string {
	text := fmt.Sprintf("%-9s  %s", outcomeText(c.GetOutcome()), subjectText(domain, entries))
	switch c.GetOutcome() {
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_REFUSED, adminv1.ChangeOutcome_CHANGE_OUTCOME_CONFLICT:
		return text + ": " + orElse(c.GetError(), "another version is in force: "+describeAssignment(c.GetBefore(), now))
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_UNKNOWN:
		return text + ": " + orElse(c.GetError(), "the store did not answer: it may be in force or not; ask again")
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_FAILED:
		return text + ": " + orElse(c.GetError(), "the store refused it, and nothing was changed")
	}
	text += ": " + describeAssignment(c.GetAfter(), now)
	if c.GetOutcome() == adminv1.ChangeOutcome_CHANGE_OUTCOME_REPLACED || c.GetOutcome() == adminv1.ChangeOutcome_CHANGE_OUTCOME_DELETED {
		text += "; until now " + describeAssignment(c.GetBefore(), now)
	}
	return text
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// succeeded reports whether what was asked for is in force.
func succeeded(o adminv1.ChangeOutcome) bool {
	switch o {
	case adminv1.ChangeOutcome_CHANGE_OUTCOME_CREATED, adminv1.ChangeOutcome_CHANGE_OUTCOME_REPLACED,
		adminv1.ChangeOutcome_CHANGE_OUTCOME_UNCHANGED, adminv1.ChangeOutcome_CHANGE_OUTCOME_DELETED:
		return true
	}
	return false
}

// lacking is what is known of daemons that may not have changes in force.
type lacking struct {
	pending map[string]bool // by address
	// unknownFor is for how long there may be more, which nobody knows.
	unknownFor time.Duration
}

// reached is what answers to changes say of daemons.
type reached interface {
	GetPending() []*adminv1.Daemon
	GetUnknownFor() *durationpb.Duration
}

func (l *lacking) add(r reached) {
	for _, d := range r.GetPending() {
		if l.pending == nil {
			l.pending = make(map[string]bool)
		}
		l.pending[orElse(d.GetAddress(), d.GetId())] = true
	}
	l.unknownFor = max(l.unknownFor, r.GetUnknownFor().AsDuration())
}

// tell names the daemons, and returns what a command whose changes are made ends with.
func (l *lacking) tell(to io.Writer) error {
	if len(l.pending) > 0 {
		fmt.Fprintf(to, "not every daemon is known to have it in force yet: %s; each has it as soon as it reaches the store\n",
			strings.Join(slices.Sorted(maps.Keys(l.pending)), ", "))
	}
	if l.unknownFor > 0 {
		fmt.Fprintf(to, "for %s there may be more daemons without it: Redis has lost, or begun, the register of daemons, or does not answer\n", timespan.Format(l.unknownFor))
	}
	if len(l.pending) > 0 || l.unknownFor > 0 {
		return exitCode(exitPending)
	}
	return nil
}
