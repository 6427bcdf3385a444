package ask

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// A record says what is assigned after and before, with the layers, in words of the day on
// which it was made, and each reason once.
func TestRecordsInWords(t *testing.T) {
	at := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	contract := &adminv1.Assignment{Numbers: []*adminv1.AssignedNumbers{{Limit: "month", Requests: 5_000_000}}, Reason: "contract"}
	relieved := &adminv1.Assignment{Numbers: contract.GetNumbers(), Reason: "contract", Temporary: []*adminv1.TemporaryLayer{{
		Numbers: []*adminv1.AssignedNumbers{{Limit: "month", Requests: 6_000_000}}, Until: timestamppb.New(at.Add(26 * time.Hour)), Reason: "relief",
	}}}
	for _, c := range []struct {
		record *adminv1.AuditRecord
		want   string
	}{
		{&adminv1.AuditRecord{Kind: adminv1.AuditKind_AUDIT_KIND_ASSIGNED, Before: contract, After: relieved, Reason: "relief"},
			"tenant=acme of api: 5,000,000 a month, contract; until tomorrow 12:00 6,000,000 a month, relief; before: 5,000,000 a month, contract"},
		{&adminv1.AuditRecord{Kind: adminv1.AuditKind_AUDIT_KIND_ASSIGNED, Before: relieved, After: contract, Reason: "no, wait"},
			`tenant=acme of api: 5,000,000 a month, contract; reason: "no, wait"; before: 5,000,000 a month, contract; until tomorrow 12:00 6,000,000 a month, relief`},
		{&adminv1.AuditRecord{Kind: adminv1.AuditKind_AUDIT_KIND_RESET, Limits: []string{"month", ""}, Reason: "ticket 815"}, "tenant=acme of api: reset month, the limit without a name; reason: ticket 815"},
		{&adminv1.AuditRecord{Kind: adminv1.AuditKind_AUDIT_KIND_RESET_FAILED, Limits: []string{"month"}}, "tenant=acme of api: reset, not completed: month"},
		{&adminv1.AuditRecord{Kind: adminv1.AuditKind_AUDIT_KIND_RESTORED, Restored: 7}, "restored 7 of the assignments that Redis had lost"},
	} {
		c.record.Domain, c.record.Entries, c.record.Time = "api", []*ratelimitv1.Entry{{Key: "tenant", Value: "acme"}}, timestamppb.New(at)
		if got := recordText(c.record); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
