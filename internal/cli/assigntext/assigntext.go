// Package assigntext reads and writes assignments the way people do: in words, as the
// numbers of a flag, and as rows of a file. It checks them before any daemon is asked. It
// imports assign, subjecttext, and the values of flags.
package assigntext

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/cli/moment"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// Check returns what is wrong with a change of an assignment, before any daemon is asked,
// one line per mistake, or nil.
func Check(p *adminv1.AssignmentPatch) error {
	set, err := Read(p.GetAssignment())
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

// Read reads an assignment. Its error says what in it cannot be read.
func Read(a *adminv1.Assignment) (assign.Assignment, error) {
	own := assign.Assignment{
		Subject: assign.Subject{Domain: a.GetDomain()},
		Terms:   assign.Terms{Plan: a.GetPlan(), Unlimited: a.GetUnlimited(), Blocked: a.GetBlocked()},
		Reason:  a.GetReason(),
	}
	for _, e := range a.GetEntries() {
		own.Entries = append(own.Entries, bucket.Entry{Key: e.GetKey(), Value: e.GetValue()})
	}
	if err := readNumbers(&own, a.GetNumbers()); err != nil {
		return own, err
	}
	if c := a.GetCalendar(); c != nil {
		own.Calendar = assign.Calendar{TimeZone: c.GetTimeZone(), Starts: c.GetStarts()}
		if own.Calendar == (assign.Calendar{}) {
			return own, errors.New("calendar: found neither time_zone nor starts; allowed: one of them, or both")
		}
	}
	var rest int64
	for _, e := range []struct {
		where string
		from  *timestamppb.Timestamp
		to    *int64
	}{
		{where: "until", from: a.Until, to: &rest},
		{where: "plan_until", from: a.PlanUntil, to: &own.PlanUntil},
		{where: "calendar.until", from: a.GetCalendar().GetUntil(), to: &own.CalendarUntil},
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

// readNumbers gives an assignment numbers and their ends.
func readNumbers(own *assign.Assignment, list []*adminv1.AssignedNumbers) error {
	for i, n := range list {
		if n.Period != nil && n.GetPeriod().AsDuration() <= 0 {
			return fmt.Errorf("numbers: a period of %s, where a positive one is needed", n.GetPeriod().AsDuration())
		}
		until, err := endOf(fmt.Sprintf("numbers[%d].until", i), n.Until)
		if err != nil {
			return err
		}
		own.Numbers = append(own.Numbers, assign.Numbers{
			Limit: n.GetLimit(), Requests: int64(n.GetRequests()), Period: n.GetPeriod().AsDuration(), Burst: int64(n.GetBurst()),
		})
		own.NumbersUntil = append(own.NumbersUntil, until)
	}
	return nil
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
		return 0, fmt.Errorf("%s: found %s; allowed: a moment after 1970, up to %s", where, m.AsTime().Format(moment.Layout), time.UnixMicro(assign.MaxMoment).UTC().Format(time.DateOnly))
	}
	return micros, nil
}

// orUntil returns the end of a part, or that of all parts if it has none of its own.
func orUntil(end *timestamppb.Timestamp, a *adminv1.Assignment) *timestamppb.Timestamp {
	if end == nil {
		return a.Until
	}
	return end
}

// withOwnEnds returns an assignment whose parts have ends of their own instead of until,
// which is all that daemons that do not know parts send.
func withOwnEnds(a *adminv1.Assignment) *adminv1.Assignment {
	if a.Until == nil {
		return a
	}
	a = proto.CloneOf(a)
	if a.GetPlan() != "" {
		a.PlanUntil = orUntil(a.PlanUntil, a)
	}
	if a.GetUnlimited() {
		a.UnlimitedUntil = orUntil(a.UnlimitedUntil, a)
	}
	for _, n := range a.GetNumbers() {
		n.Until = orUntil(n.Until, a)
	}
	if c := a.GetCalendar(); c != nil {
		c.Until = orUntil(c.Until, a)
	}
	if a.GetPlan() == "" && !a.GetUnlimited() && len(a.GetNumbers()) == 0 && a.GetCalendar() == nil {
		a.BlockedUntil = orUntil(a.BlockedUntil, a)
	}
	a.Until = nil
	return a
}

// calendarText says a calendar in words. Texts of a daemon may be of any kind.
func calendarText(c *adminv1.AssignedCalendar) string {
	var said assign.Calendar
	if c.GetStarts() != "" {
		said.Starts = yamlfile.Printable(c.GetStarts())
	}
	if c.GetTimeZone() != "" {
		said.TimeZone = yamlfile.Printable(c.GetTimeZone())
	}
	return said.String()
}

// Describe describes an assignment in words, part by part; nil is nothing.
func Describe(a *adminv1.Assignment, now time.Time) string {
	if a == nil {
		return "nothing assigned"
	}
	a = withOwnEnds(a)
	var parts []string
	add := func(text string, until *timestamppb.Timestamp) {
		if until != nil {
			text += " until " + moment.Until(until, now)
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
	if c := a.GetCalendar(); c != nil {
		add(calendarText(c), c.Until)
	}
	text := strings.Join(parts, ", ")
	if a.GetReason() != "" {
		text += fmt.Sprintf(" (reason: %q)", a.GetReason())
	}
	return text
}
