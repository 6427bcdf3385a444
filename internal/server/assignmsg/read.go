// Package assignmsg reads the changes of assignments that requests of the admin API ask
// for, and shows assignments and records as its messages. It imports assign and the API.
package assignmsg

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// Entries reads entries.
func Entries(entries []*ratelimitv1.Entry) []bucket.Entry {
	var all []bucket.Entry
	for _, e := range entries {
		all = append(all, bucket.Entry{Key: e.GetKey(), Value: e.GetValue()})
	}
	return all
}

// Put reads a put. Its error says what is wrong with it, where and what is allowed. Ends
// have to be after now.
func Put(m *adminv1.PutAssignment, now time.Time) (assign.Change, error) {
	c, err := readChange(m.GetAssignment(), now)
	c.IfMatch = m.GetIfMatch()
	c.Remove.Rest, c.Remove.OfBase = saysMore(m.GetAssignment()), true
	if err != nil {
		return c, err
	}
	if m.GetAssignment().GetUntil() != nil {
		return c, errors.New("until: found one; allowed: none, since a put says what has no end: a patch puts a layer on top")
	}
	return c, c.Check()
}

// Patch is Put for a patch.
func Patch(m *adminv1.AssignmentPatch, now time.Time) (assign.Change, error) {
	c, err := readChange(m.GetAssignment(), now)
	c.IfMatch = m.GetIfMatch()
	c.Remove.Limits, c.Remove.OfBase = m.GetRemoveLimits(), m.GetRemoveFromBase()
	if err != nil {
		return c, err
	}
	for i, part := range m.GetRemove() {
		if !AddPart(&c.Remove, part) {
			return c, fmt.Errorf("remove[%d]: found %s; allowed: %s", i, part, AllowedParts)
		}
	}
	return c, c.Check()
}

// AllowedParts lists the parts that AddPart knows.
const AllowedParts = "PART_BLOCK, PART_TERMS, PART_PLAN, PART_UNLIMITED, PART_NUMBERS, PART_CALENDAR or PART_TEMPORARY"

// AddPart adds a part to those that are removed. It reports whether there is such a part.
func AddPart(to *assign.Parts, part adminv1.Part) bool {
	switch part {
	case adminv1.Part_PART_BLOCK:
		to.Block = true
	case adminv1.Part_PART_TERMS:
		to.Rest = true
	case adminv1.Part_PART_PLAN:
		to.Plan = true
	case adminv1.Part_PART_UNLIMITED:
		to.Unlimited = true
	case adminv1.Part_PART_NUMBERS:
		to.Numbers = true
	case adminv1.Part_PART_CALENDAR:
		to.Calendar = true
	case adminv1.Part_PART_TEMPORARY:
		to.Temporary = true
	default:
		return false
	}
	return true
}

// layer is the part of a message that says parts of an assignment.
type layer interface {
	GetPlan() string
	GetNumbers() []*adminv1.AssignedNumbers
	GetUnlimited() bool
	GetBlocked() bool
	GetCalendar() *adminv1.AssignedCalendar
	GetUntil() *timestamppb.Timestamp
	GetReason() string
}

// saysMore reports whether a message says more than a block.
func saysMore(m layer) bool {
	return m.GetPlan() != "" || m.GetUnlimited() || len(m.GetNumbers()) > 0 || m.GetCalendar() != nil
}

// readChange reads the base or the layer that an assignment sets, and the layers on top.
func readChange(m *adminv1.Assignment, now time.Time) (assign.Change, error) {
	c := assign.Change{Subject: assign.Subject{Domain: m.GetDomain(), Entries: Entries(m.GetEntries())}, Reason: m.GetReason()}
	switch {
	case m.GetUntil() != nil && len(m.GetTemporary()) > 0:
		return c, errors.New("until: found it beside temporary; allowed: one of the two")
	case m.GetBlocked() || saysMore(m):
		own, err := readLayer(m, now)
		if err != nil {
			return c, err
		}
		c.Set = append(c.Set, own)
	case m.GetUntil() != nil:
		return c, errors.New("until: found it without a part that it would end; allowed: both")
	}
	for i, t := range m.GetTemporary() {
		on, err := readLayer(t, now)
		switch {
		case err != nil:
			return c, fmt.Errorf("temporary[%d].%w", i, err)
		case on.Until == 0:
			return c, fmt.Errorf("temporary[%d].until: found none; allowed: a moment to come", i)
		case !t.GetBlocked() && !saysMore(t):
			return c, fmt.Errorf("temporary[%d]: found no part that would end; allowed: one or more", i)
		}
		c.Set = append(c.Set, on)
	}
	return c, nil
}

// isSpan reports whether d is a time above 0, or absent.
func isSpan(d *durationpb.Duration) bool { return d == nil || d.IsValid() && d.AsDuration() > 0 }

func readLayer(m layer, now time.Time) (assign.Layer, error) {
	l := assign.Layer{
		Terms:  assign.Terms{Plan: m.GetPlan(), Unlimited: m.GetUnlimited(), Blocked: m.GetBlocked()},
		Reason: m.GetReason(),
	}
	for i, n := range m.GetNumbers() {
		if !isSpan(n.GetPeriod()) {
			return l, fmt.Errorf("numbers[%d].period: found %s; allowed: a time, or leave it out for the limit's own", i, n.GetPeriod().AsDuration())
		}
		if !isSpan(n.GetBlockFor()) {
			return l, fmt.Errorf("numbers[%d].block_for: found %s; allowed: a time, or leave it out for the limit's own", i, n.GetBlockFor().AsDuration())
		}
		l.Numbers = append(l.Numbers, assign.Numbers{
			Limit: n.GetLimit(), Requests: numberOf(n.GetRequests()), Period: n.GetPeriod().AsDuration(), Burst: numberOf(n.GetBurst()),
			BlockFor: n.GetBlockFor().AsDuration(),
		})
	}
	if c := m.GetCalendar(); c != nil {
		if l.Calendar = (assign.Calendar{TimeZone: c.GetTimeZone(), Starts: c.GetStarts()}); l.Calendar == (assign.Calendar{}) {
			return l, errors.New("calendar: found neither time_zone nor starts; allowed: one of them, or both")
		}
	}
	if until := m.GetUntil(); until != nil {
		if err := until.CheckValid(); err != nil || !until.AsTime().After(now) {
			return l, fmt.Errorf("until: found %s; allowed: a moment to come, or leave it out", until.AsTime().Format(time.RFC3339))
		}
		l.Until = until.AsTime().UnixMicro()
	}
	return l, nil
}

// numberOf reads a number, which is checked elsewhere: what is too large to be signed is
// too large for any limit.
func numberOf(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
