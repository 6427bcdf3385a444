package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// checkAssignment returns what is wrong with an assignment before any daemon is
// asked, a line for each mistake, or nil.
func checkAssignment(a *adminv1.Assignment) error {
	own := assign.Assignment{
		Subject: assign.Subject{Domain: a.GetDomain()},
		Terms:   assign.Terms{Plan: a.GetPlan(), Unlimited: a.GetUnlimited(), Blocked: a.GetBlocked()},
		Reason:  a.GetReason(),
	}
	for _, e := range a.GetEntries() {
		own.Entries = append(own.Entries, bucket.Entry{Key: e.GetKey(), Value: e.GetValue()})
	}
	for _, n := range a.GetNumbers() {
		if n.Period != nil && n.GetPeriod().AsDuration() <= 0 {
			return fmt.Errorf("numbers: a period of %s, where a positive one is needed", n.GetPeriod().AsDuration())
		}
		own.Numbers = append(own.Numbers, assign.Numbers{
			Limit: n.GetLimit(), Requests: int64(n.GetRequests()), Period: n.GetPeriod().AsDuration(), Burst: int64(n.GetBurst()),
		})
	}
	var err error
	if own.Until, err = endOf("until", a.Until); err != nil {
		return err
	}
	if own.BlockedUntil, err = endOf("blocked_until", a.BlockedUntil); err != nil {
		return err
	}
	own.EndOfBlockAlone()
	return own.Check()
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

// describeAssignment says in words what is assigned; nil is nothing.
func describeAssignment(a *adminv1.Assignment, now time.Time) string {
	if a == nil {
		return "nothing assigned"
	}
	var parts []string
	if a.GetBlocked() {
		text := "blocked"
		if a.BlockedUntil != nil {
			text += " until " + untilText(a.GetBlockedUntil(), now)
		}
		parts = append(parts, text)
	}
	if a.GetUnlimited() {
		parts = append(parts, "unlimited")
	}
	if a.GetPlan() != "" {
		parts = append(parts, "plan "+yamlfile.Printable(a.GetPlan()))
	}
	for _, n := range a.GetNumbers() {
		parts = append(parts, "limit "+formatNumbers([]*adminv1.AssignedNumbers{n}))
	}
	text := strings.Join(parts, ", ")
	if a.Until != nil {
		text += " until " + untilText(a.GetUntil(), now)
	}
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

// pendingDaemons are those that may not have a change in force.
type pendingDaemons map[string]bool

func (p pendingDaemons) add(daemons []*adminv1.Daemon) {
	for _, d := range daemons {
		p[orElse(d.GetAddress(), d.GetId())] = true
	}
}
