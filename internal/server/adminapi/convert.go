package adminapi

import (
	"encoding/base64"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

func moment(micros int64) *timestamppb.Timestamp {
	if micros == 0 {
		return nil
	}
	return timestamppb.New(time.UnixMicro(micros))
}

func entriesOf(entries []*ratelimitv1.Entry) []bucket.Entry {
	var all []bucket.Entry
	for _, e := range entries {
		all = append(all, bucket.Entry{Key: e.GetKey(), Value: e.GetValue()})
	}
	return all
}

func showEntries(entries []bucket.Entry) []*ratelimitv1.Entry {
	var all []*ratelimitv1.Entry
	for _, e := range entries {
		all = append(all, &ratelimitv1.Entry{Key: e.Key, Value: e.Value})
	}
	return all
}

// subjectOf returns the subject of a request, or an INVALID_ARGUMENT that says what
// is wrong with it.
func subjectOf(domain string, entries []*ratelimitv1.Entry) (assign.Subject, error) {
	s := assign.Subject{Domain: domain, Entries: entriesOf(entries)}
	if err := s.Check(); err != nil {
		return s, endpoint.Invalid("%v", err)
	}
	return s, nil
}

// assignmentOf reads an assignment, whose parts are checked elsewhere, and says what in
// it cannot be read, or returns "".
func assignmentOf(m *adminv1.Assignment, now time.Time) (assign.Assignment, string) {
	a := assign.Assignment{
		Subject: assign.Subject{Domain: m.GetDomain(), Entries: entriesOf(m.GetEntries())},
		Terms:   assign.Terms{Plan: m.GetPlan(), Unlimited: m.GetUnlimited(), Blocked: m.GetBlocked()},
		Reason:  m.GetReason(),
	}
	for i, n := range m.GetNumbers() {
		if err := n.GetPeriod().CheckValid(); n.GetPeriod() != nil && (err != nil || n.GetPeriod().AsDuration() <= 0) {
			return a, fmt.Sprintf("numbers[%d].period: found %s; allowed: a time, or leave it out for the limit's own", i, n.GetPeriod())
		}
		until, wrong := endAt(fmt.Sprintf("numbers[%d].until", i), n.GetUntil(), now)
		if wrong != "" {
			return a, wrong
		}
		a.Numbers = append(a.Numbers, assign.Numbers{
			Limit: n.GetLimit(), Requests: numberOf(n.GetRequests()), Period: n.GetPeriod().AsDuration(), Burst: numberOf(n.GetBurst()),
		})
		a.NumbersUntil = append(a.NumbersUntil, until)
	}
	if c := m.GetCalendar(); c != nil {
		if a.Calendar = (assign.Calendar{TimeZone: c.GetTimeZone(), Starts: c.GetStarts()}); a.Calendar == (assign.Calendar{}) {
			return a, "calendar: found neither time_zone nor starts; allowed: one of them, or both"
		}
	}
	var rest int64
	for _, e := range []struct {
		where string
		from  *timestamppb.Timestamp
		to    *int64
	}{
		{where: "until", from: m.GetUntil(), to: &rest},
		{where: "plan_until", from: m.GetPlanUntil(), to: &a.PlanUntil},
		{where: "calendar.until", from: m.GetCalendar().GetUntil(), to: &a.CalendarUntil},
		{where: "unlimited_until", from: m.GetUnlimitedUntil(), to: &a.UnlimitedUntil},
		{where: "blocked_until", from: m.GetBlockedUntil(), to: &a.BlockedUntil},
	} {
		var wrong string
		if *e.to, wrong = endAt(e.where, e.from, now); wrong != "" {
			return a, wrong
		}
	}
	a.EndRest(rest)
	return a, ""
}

// numberOf reads a number, which is checked elsewhere: what is too large to be signed is
// too large for any limit.
func numberOf(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// endAt reads when something ends, and says what is wrong with it, or returns "".
func endAt(where string, m *timestamppb.Timestamp, now time.Time) (micros int64, wrong string) {
	if m == nil {
		return 0, ""
	}
	if err := m.CheckValid(); err != nil || !m.AsTime().After(now) {
		return 0, fmt.Sprintf("%s: found %s; allowed: a moment to come, or leave it out", where, m.AsTime().Format(time.RFC3339))
	}
	return m.AsTime().UnixMicro(), ""
}

func showAssignment(a *assign.Assignment) *adminv1.Assignment {
	if a == nil {
		return nil
	}
	m := &adminv1.Assignment{
		Domain: a.Domain, Entries: showEntries(a.Entries), Plan: a.Plan, Unlimited: a.Unlimited, Blocked: a.Blocked,
		PlanUntil: moment(a.PlanUntil), UnlimitedUntil: moment(a.UnlimitedUntil), BlockedUntil: moment(a.BlockedUntil),
		Reason: a.Reason, MadeBy: a.By, MadeAt: moment(a.At), Etag: a.ETag,
	}
	until, _ := a.Until()
	m.Until = moment(until)
	for i, n := range a.Numbers {
		shown := &adminv1.AssignedNumbers{Limit: n.Limit, Requests: uint64(n.Requests), Burst: uint64(n.Burst), Until: moment(a.NumbersEnd(i))}
		if n.Period != 0 {
			shown.Period = durationpb.New(n.Period)
		}
		m.Numbers = append(m.Numbers, shown)
	}
	if a.Calendar != (assign.Calendar{}) {
		m.Calendar = &adminv1.AssignedCalendar{TimeZone: a.Calendar.TimeZone, Starts: a.Calendar.Starts, Until: moment(a.CalendarUntil)}
	}
	return m
}

// describe returns an assignment's parts for a line of the log.
func describe(a *assign.Assignment) string {
	if a == nil {
		return "nothing"
	}
	var parts []string
	add := func(text string, until int64) {
		if until != 0 {
			text += " until " + time.UnixMicro(until).UTC().Format(time.RFC3339)
		}
		parts = append(parts, text)
	}
	if a.Blocked {
		add("blocked", a.BlockedUntil)
	}
	if a.Unlimited {
		add("unlimited", a.UnlimitedUntil)
	}
	for i, n := range a.Numbers {
		text := fmt.Sprintf("limit %q: %d requests", n.Limit, n.Requests)
		if n.Period != 0 {
			text += " in " + n.Period.String()
		}
		if n.Burst != 0 {
			text += fmt.Sprintf(", burst %d", n.Burst)
		}
		add(text, a.NumbersEnd(i))
	}
	if a.Plan != "" {
		add("plan "+a.Plan, a.PlanUntil)
	}
	if a.Calendar != (assign.Calendar{}) {
		add(a.Calendar.String(), a.CalendarUntil)
	}
	return strings.Join(parts, "; ")
}

func showRecord(r *assign.Record) *adminv1.AuditRecord {
	kinds := map[assign.RecordKind]adminv1.AuditKind{
		assign.Assigned:   adminv1.AuditKind_AUDIT_KIND_ASSIGNED,
		assign.Unassigned: adminv1.AuditKind_AUDIT_KIND_UNASSIGNED,
		assign.WasReset:   adminv1.AuditKind_AUDIT_KIND_RESET,
		assign.Restored:   adminv1.AuditKind_AUDIT_KIND_RESTORED,
	}
	return &adminv1.AuditRecord{
		Id: r.ID, Time: moment(r.Moment), MadeBy: r.By, Kind: kinds[r.Kind], Domain: r.Domain, Entries: showEntries(r.Entries),
		Before: showAssignment(r.Before), After: showAssignment(r.After), Limits: r.Limits, Reason: r.Reason,
		Restored: uint64(r.Restored),
	}
}

// A page's token is the store's in letters, so that it can stand in a URL.

func pageToken(next string) string { return base64.RawURLEncoding.EncodeToString([]byte(next)) }

func readPageToken(token string) (string, error) {
	after, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(after) > 4<<10 {
		return "", endpoint.Invalid("%v", assign.ErrPageToken)
	}
	return string(after), nil
}

// pageSize returns how many items a page may have.
func pageSize(asked uint32, byDefault, maxSize int) (int, error) {
	switch {
	case asked == 0:
		return byDefault, nil
	case asked > uint32(maxSize):
		return 0, endpoint.Invalid("page_size: found %d; allowed: 1 to %d, or 0 for %d", asked, maxSize, byDefault)
	}
	return int(asked), nil
}
