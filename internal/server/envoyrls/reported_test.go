package envoyrls_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// report is a request in a sequence; hits are those of its descriptors, "" for
// none of their own.
type report struct {
	hits        []string
	descriptors []string
	want        string // the overall code and the statuses
}

func TestReportedHitsAreChargedInFull(t *testing.T) {
	t.Parallel()
	const (
		ok21   = "OK; OK  21/HOUR remaining 21 reset 0s"
		ok11   = "OK; OK  21/HOUR remaining 11" + hourReset
		ok1    = "OK; OK  21/HOUR remaining 1" + hourReset
		over   = "OVER_LIMIT; OVER_LIMIT  21/HOUR remaining 0" + hourReset + "; retry-after: 3590"
		shadow = "OK; OK  21/HOUR remaining 0" + hourReset
	)
	for name, reports := range map[string][]report{
		// What Envoy Gateway's cost limits and Envoy AI Gateway's token limits ask: 0
		// when a request comes, and what it used when it is done.
		"tokens of a language model": {
			{[]string{"0"}, []string{"tokens=a"}, ok21},
			{[]string{"10"}, []string{"tokens=a"}, ok11},
			{[]string{"0"}, []string{"tokens=a"}, ok11},
			{[]string{"10"}, []string{"tokens=a"}, ok1},
			{[]string{"0"}, []string{"tokens=a"}, ok1},
			{[]string{"10"}, []string{"tokens=a"}, over},
			{[]string{"0"}, []string{"tokens=a"}, over},
		},

		"a bucket pays its debt": {
			{[]string{"42"}, []string{"bucket=a"}, "OVER_LIMIT; OVER_LIMIT  21/HOUR remaining 0 reset 2h0m0s; retry-after: 3600"},
			{[]string{"0"}, []string{"bucket=a"}, "OVER_LIMIT; OVER_LIMIT  21/HOUR remaining 0 reset 2h0m0s; retry-after: 3600"},
		},
		"postpaid false": {
			{[]string{"20"}, []string{"strict=a"}, ok1},
			{[]string{"10"}, []string{"strict=a"}, "OVER_LIMIT; OVER_LIMIT  21/HOUR remaining 1" + hourReset + "; retry-after: 3590"},
			{[]string{"0"}, []string{"strict=a"}, ok1},
		},
		"postpaid true": {
			{[]string{"20"}, []string{"paid=a"}, ok1},
			{[]string{"10"}, []string{"paid=a"}, shadow},
			{[]string{"0"}, []string{"paid=a"}, over},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := servertest.Start(t, servertest.ReportLimits)
			for i, r := range reports {
				if got := servertest.Show(d.Send(servertest.Charging(t, 0, r.hits, r.descriptors...))); got != r.want {
					t.Errorf("request %d, %v of %v:\n got %s\nwant %s", i+1, r.hits, r.descriptors, got, r.want)
				}
			}
		})
	}
}

// The daemon's own API gives what to charge as a cost, and its denial is free on these
// limits too: a caller that reports use there sets postpaid.
func TestCostsOfTakesAreNoReports(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.ReportLimits)
	for i, c := range []struct {
		descriptor string
		allowed    bool
	}{
		{"tokens=a:20", true}, {"tokens=a:10", false}, {"tokens=a:0", true}, {"tokens=a:1", true}, {"tokens=a:0", false},
		{"paid=a:20", true}, {"paid=a:10", true}, {"paid=a:0", false},
	} {
		if got := d.SendTake(servertest.Taking(c.descriptor)); got.GetAllowed() != c.allowed {
			t.Errorf("take %d, %s: allowed %v", i+1, c.descriptor, got.GetAllowed())
		}
	}
}
