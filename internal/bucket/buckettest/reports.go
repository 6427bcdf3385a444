package buckettest

import (
	"slices"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

func reportInADeniedGroup(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	for _, a := range Rates() {
		report := Hit(reportedLimit(t, bucket.Spec{Name: "used", Algorithm: a, Requests: 10, Period: still}), a.String(), 4)
		full := Hit(stillLimit(t, a, 3), a.String()+" full", 3)
		Take(t, s, full)
		if d := Take(t, s, report, full); bucket.Allowed(d) || !d[0].Allowed() || d[0].Remaining != 6 {
			t.Errorf("%s: got %+v, want a denied group in which 4 of 10 were charged", a, d)
		}
		report.Cost = 6
		if d := Take(t, s, report); !bucket.Allowed(d) || d[0].Remaining != 0 {
			t.Errorf("%s: got %+v, want the last 6 of 10", a, d)
		}
		report.Cost = 0
		if d := Take(t, s, report); !bucket.Allowed(d) {
			t.Errorf("%s: a peek at the limit gets %+v", a, d)
		}
		report.Cost = 100
		if d := Take(t, s, report); bucket.Allowed(d) || d[0].RetryAfter == bucket.Never {
			t.Errorf("%s: got %+v, want to be denied for a while", a, d)
		}
		report.Cost = 0
		if d := Take(t, s, report); bucket.Allowed(d) {
			t.Errorf("%s: a peek beyond the limit gets %+v", a, d)
		}
	}
}

func denialBesideReports(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	for _, a := range Rates() {
		l := NewLimit(t, bucket.Spec{Algorithm: a, Requests: 10, Period: still, Postpaid: bucket.PostpaidAuto})
		plain, report := Hit(l, a.String(), 4), Hit(l.Reported(), a.String(), 7)
		Take(t, s, report)
		if d := Take(t, s, plain); bucket.Allowed(d) || d[0].Remaining != 3 {
			t.Errorf("%s: 4 with 3 left get %+v", a, d)
		}
		wantRemaining(t, s, plain, 3)
		plain.Cost = 3
		if d := Take(t, s, plain); !bucket.Allowed(d) {
			t.Errorf("%s: 3 with 3 left get %+v", a, d)
		}
		plain.Cost, report.Cost = 0, 0
		if d := Take(t, s, plain); bucket.Allowed(d) {
			t.Errorf("%s: a plain peek with nothing left gets %+v", a, d)
		}
		if d := Take(t, s, report); !bucket.Allowed(d) {
			t.Errorf("%s: a report of 0 at the limit gets %+v", a, d)
		}
	}
}

func reportMerges(t *testing.T, h Harness) {
	for name, reportFirst := range map[string]bool{"the report first": true, "the report last": false} {
		s := h.Open(t, nil)
		for _, a := range Rates() {
			l := NewLimit(t, bucket.Spec{Algorithm: a, Requests: 10, Period: still, Postpaid: bucket.PostpaidAuto})
			group := []bucket.Hit{Hit(l.Reported(), a.String()+name, 7), Hit(l, a.String()+name, 4)}
			if !reportFirst {
				slices.Reverse(group)
			}
			if d := Take(t, s, group...); bucket.Allowed(d) || d[0].Remaining != 0 {
				t.Errorf("%s, %s: 11 of 10 get %+v, want to be denied and charged", a, name, d)
			}
			if d := Take(t, s, Hit(l.Reported(), a.String()+name, 0)); bucket.Allowed(d) {
				t.Errorf("%s, %s: a peek beyond the limit gets %+v", a, name, d)
			}
		}
	}
}
