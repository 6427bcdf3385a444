package assignmsg

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// Show returns an assignment as a message; nil for nil.
func Show(a *assign.Assignment) *adminv1.Assignment {
	if a == nil {
		return nil
	}
	m := &adminv1.Assignment{
		Domain: a.Domain, Entries: ShowEntries(a.Entries),
		Plan: a.Base.Plan, Numbers: showNumbers(a.Base.Numbers), Calendar: showCalendar(a.Base.Calendar), Unlimited: a.Base.Unlimited, Blocked: a.Base.Blocked,
		Reason: a.Base.Reason, MadeBy: a.Base.By, MadeAt: moment(a.Base.At), Etag: a.ETag,
	}
	for i := range a.Layers {
		l := &a.Layers[i]
		m.Temporary = append(m.Temporary, &adminv1.TemporaryLayer{
			Plan: l.Plan, Numbers: showNumbers(l.Numbers), Calendar: showCalendar(l.Calendar), Unlimited: l.Unlimited, Blocked: l.Blocked,
			Until: moment(l.Until), Reason: l.Reason, MadeBy: l.By, MadeAt: moment(l.At),
		})
	}
	return m
}

// ShowEntries returns entries as messages.
func ShowEntries(entries []bucket.Entry) []*ratelimitv1.Entry {
	var all []*ratelimitv1.Entry
	for _, e := range entries {
		all = append(all, &ratelimitv1.Entry{Key: e.Key, Value: e.Value})
	}
	return all
}

func showNumbers(numbers []assign.Numbers) []*adminv1.AssignedNumbers {
	var all []*adminv1.AssignedNumbers
	for _, n := range numbers {
		shown := &adminv1.AssignedNumbers{Limit: n.Limit, Requests: uint64(n.Requests), Burst: uint64(n.Burst)}
		if n.Period != 0 {
			shown.Period = durationpb.New(n.Period)
		}
		if n.BlockFor != 0 {
			shown.BlockFor = durationpb.New(n.BlockFor)
		}
		all = append(all, shown)
	}
	return all
}

func showCalendar(c assign.Calendar) *adminv1.AssignedCalendar {
	if c == (assign.Calendar{}) {
		return nil
	}
	return &adminv1.AssignedCalendar{TimeZone: c.TimeZone, Starts: c.Starts}
}

var recordKinds = map[assign.RecordKind]adminv1.AuditKind{
	assign.Assigned:    adminv1.AuditKind_AUDIT_KIND_ASSIGNED,
	assign.Unassigned:  adminv1.AuditKind_AUDIT_KIND_UNASSIGNED,
	assign.WasReset:    adminv1.AuditKind_AUDIT_KIND_RESET,
	assign.ResetFailed: adminv1.AuditKind_AUDIT_KIND_RESET_FAILED,
	assign.Restored:    adminv1.AuditKind_AUDIT_KIND_RESTORED,
}

// ShowRecord returns the record of a change as a message.
func ShowRecord(r *assign.Record) *adminv1.AuditRecord {
	return &adminv1.AuditRecord{
		Id: r.ID, Time: moment(r.Moment), MadeBy: r.By, Kind: recordKinds[r.Kind], Domain: r.Domain, Entries: ShowEntries(r.Entries),
		Before: Show(r.Before), After: Show(r.After), Limits: r.Limits, Reason: r.Reason, Restored: uint64(r.Restored), Undoes: r.Undoes,
	}
}

func moment(micros int64) *timestamppb.Timestamp {
	if micros == 0 {
		return nil
	}
	return timestamppb.New(time.UnixMicro(micros))
}
