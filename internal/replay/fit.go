package replay

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/server/decide"
)

// Fit is what a limit would have to say for a share of its requests to pass.
//
// The numbers are found by deciding all requests that asked the limit again, with its
// own steps and each subject's own state, for one candidate after the other: first
// the smallest requests, by doubling and then halving, with the burst in the file's
// proportion to them; then with these requests the smallest burst, by halving. The
// limit is alone there: what others of the rule deny is charged all the same, and of a
// rule with n limits each may deny an n-th of what the rule may. Numbers
// that an assignment or a request brought are left out, and give-backs too, so that
// what was given back counts as used.
//
// Where all requests cost the same, more requests or burst never let fewer pass, and
// the numbers are exactly the smallest ones. Where costs differ that need not be so:
// the numbers let the share pass, and some smaller ones may as well, though not those
// with one request less, nor those with a burst of one less.
type Fit struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	Limit  string `json:"limit"`
	// Asked counts the requests with a cost that asked the limit, of Subjects.
	Asked    uint64 `json:"asked"`
	Subjects int    `json:"subjects"`
	// Requests and Burst are those that it has, and Passed is the share that passes
	// with them, 0 to 1. Burst is 0 where the algorithm has none.
	Requests int64   `json:"requests"`
	Burst    int64   `json:"burst"`
	Passed   float64 `json:"passed"`
	// Proposed are the smallest, or 0 if there is a Problem.
	ProposedRequests int64   `json:"proposed_requests"`
	ProposedBurst    int64   `json:"proposed_burst"`
	ProposedPassed   float64 `json:"proposed_passed"`
	// Problem says why there are none.
	Problem string `json:"problem,omitempty"`

	rule  *config.Rule
	limit *bucket.Limit
}

// mostAsked bounds the requests that are kept for fitting, each 24 bytes.
const mostAsked = 64 << 20

// fitting gathers what was asked of each limit.
type fitting struct {
	share  float64
	limits map[fitName]*fitted
	asked  int
}

type fitName struct {
	rule  *config.Rule
	index int
}

// fitted is what was asked of a limit.
type fitted struct {
	fitName
	row      *row
	limit    *bucket.Limit
	subjects map[string]uint32 // by key
	asked    []asked
	states   []bucket.State // of subjects, for one candidate
}

// asked is a request to a limit.
type asked struct {
	at, cost int64
	subject  uint32
	reports  bool
}

func newFitting(share float64) *fitting {
	return &fitting{share: share, limits: make(map[fitName]*fitted)}
}

// add keeps what a decided call asked at a moment.
func (f *fitting) add(at int64, c *decide.Call, verdicts []verdict) error {
	n := 0
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		for _, l := range o.Limits {
			h := &c.Hits[n]
			n++
			if !o.IsRuled() || o.Refusal != decide.NotRefused || h.Cost == 0 {
				continue
			}
			index := slices.Index(o.Rule.Limits, l)
			if index < 0 {
				continue // assigned numbers
			}
			if f.asked++; f.asked > mostAsked {
				return fmt.Errorf("found more than %d requests to fit; allowed: as many, so a part of the log", mostAsked)
			}
			f.of(fitName{o.Rule, index}, verdicts[i].row).add(at, h, c.Descriptors[i].Reports)
		}
	}
	return nil
}

func (f *fitting) of(name fitName, r *row) *fitted {
	found := f.limits[name]
	if found == nil {
		found = &fitted{fitName: name, row: r, limit: name.rule.Limits[name.index], subjects: make(map[string]uint32)}
		f.limits[name] = found
	}
	return found
}

func (f *fitted) add(at int64, h *bucket.Hit, reports bool) {
	subject, known := f.subjects[string(h.Key)]
	if !known {
		subject = uint32(len(f.subjects))
		f.subjects[string(h.Key)] = subject
	}
	f.asked = append(f.asked, asked{at, h.Cost, subject, reports})
}

// fits returns the proposals, by domain, rule and limit.
func (f *fitting) fits() []Fit {
	fits := make([]Fit, 0, len(f.limits))
	all := make([]*fitted, 0, len(f.limits))
	for _, limit := range f.limits {
		all = append(all, limit)
	}
	slices.SortFunc(all, func(a, b *fitted) int {
		return cmp.Or(cmp.Compare(a.row.domain, b.row.domain), cmp.Compare(a.row.rule, b.row.rule), cmp.Compare(a.index, b.index))
	})
	for _, limit := range all {
		fits = append(fits, limit.fit(limit.shareOf(f.share)))
	}
	return fits
}

// shareOf returns the share that has to pass the limit for a share to pass its rule. What
// may be denied is divided among the limits of the rule that deny, since they may deny
// different requests.
func (f *fitted) shareOf(share float64) float64 {
	deny := 0
	for _, l := range f.rule.Limits {
		if l.Unenforced < bucket.AllSubjects {
			deny++
		}
	}
	if deny == 1 || f.limit.Unenforced == bucket.AllSubjects { // which stands for itself
		return share
	}
	return 1 - (1-share)/float64(deny)
}

// fit proposes numbers for a limit.
func (f *fitted) fit(share float64) Fit {
	f.states = make([]bucket.State, len(f.subjects))
	found := Fit{
		Domain: f.row.domain, Rule: f.row.rule, Limit: config.LimitName(f.limit), Subjects: len(f.subjects),
		Requests: f.limit.Requests, Burst: f.limit.Burst, rule: f.rule, limit: f.limit,
	}
	passed, all := f.passing(f.limit)
	if found.Asked = all; all == 0 {
		found.Problem = "nothing but refunds was asked of it"
		return found
	}
	found.Passed = float64(passed) / float64(all)
	s := search{f, func(passed uint64) bool { return float64(passed) >= share*float64(all) }}
	requests, ok := s.requests()
	if !ok {
		found.Problem = fmt.Sprintf("no %s that a file may have lets %s pass", f.limit.Algorithm, percentOf(share))
		return found
	}
	burst := s.burst(requests)
	passed, _ = f.passing(f.with(requests, burst))
	found.ProposedRequests, found.ProposedBurst, found.ProposedPassed = requests, burst, float64(passed)/float64(all)
	return found
}

func percentOf(share float64) string { return fmt.Sprintf("%.6g%%", 100*share) }

// with returns the limit with other numbers, or nil if no file may have them. burst
// is 0 where the algorithm has none.
func (f *fitted) with(requests, burst int64) *bucket.Limit {
	spec := f.limit.Spec
	spec.Requests, spec.Burst = requests, burst
	l, err := bucket.NewLimit(spec)
	if err != nil {
		return nil
	}
	return l
}

// passing counts the requests that pass a limit, and all of them.
func (f *fitted) passing(l *bucket.Limit) (passed, all uint64) {
	for i := range f.states {
		f.states[i] = bucket.State{Spans: f.states[i].Spans[:0]}
	}
	for i := range f.asked {
		a := &f.asked[i]
		limit, s := l, &f.states[a.subject]
		if a.reports {
			limit = l.Reported()
		}
		d := limit.Decide(s, a.at, a.cost)
		if a.cost > 0 {
			all++
			if d.Allowed() {
				passed++
			}
		}
		if d.Allowed() || limit.ChargedAnyway(a.cost) {
			limit.Charge(s, a.at, a.cost, d)
		}
	}
	return passed, all
}

// search looks for the smallest numbers with which enough pass.
type search struct {
	*fitted
	isEnough func(passed uint64) bool
}

func (s *search) suffices(requests, burst int64) bool {
	l := s.with(requests, burst)
	if l == nil {
		return false
	}
	passed, _ := s.passing(l)
	return s.isEnough(passed)
}

// burstOf returns the burst beside so many requests that is in proportion to the
// file's.
func (s *search) burstOf(requests int64) int64 {
	if !s.limit.Algorithm.IsBucket() {
		return 0
	}
	of := max(1, s.limit.Requests)
	whole, rest := requests/of, requests%of
	burst := max(1, s.limit.Burst)
	return min(bucket.MaxRequests, whole*burst+(rest*burst+of-1)/of)
}

// requests returns the smallest ones that suffice.
func (s *search) requests() (n int64, ok bool) {
	most := int64(bucket.MaxRequests)
	if s.limit.Algorithm == bucket.SlidingLog {
		most = bucket.MaxLogRequests
	}
	low, high := int64(0), min(most, max(1, s.limit.Requests))
	for !s.suffices(high, s.burstOf(high)) {
		if high == most {
			return 0, false
		}
		low, high = high, min(2*high, most)
	}
	return s.halve(low, high, func(n int64) bool { return s.suffices(n, s.burstOf(n)) }), true
}

// burst returns the smallest one that suffices beside requests that do.
func (s *search) burst(requests int64) int64 {
	if !s.limit.Algorithm.IsBucket() {
		return 0
	}
	return s.halve(0, s.burstOf(requests), func(n int64) bool { return s.suffices(requests, n) })
}

// halve returns a number above low, up to high, that suffices while the one before
// it does not; low does not, and high does.
func (s *search) halve(low, high int64, suffices func(int64) bool) int64 {
	for high-low > 1 {
		if middle := low + (high-low)/2; suffices(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

// period writes a period as in a file.
func period(d time.Duration) string {
	for _, unit := range []struct {
		span time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if d%unit.span == 0 {
			return fmt.Sprintf("%d%s", d/unit.span, unit.name)
		}
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}
