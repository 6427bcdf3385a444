package replay

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// decided is what a candidate does to everything that was asked of a limit.
type decided struct {
	// passed and asked count requests with a cost, whole the subjects whose requests all
	// pass.
	passed, asked uint64
	whole         int
}

// share returns the share of the requests that pass, 0 to 1.
func (d *decided) share() float64 { return float64(d.passed) / float64(d.asked) }

// decide decides everything that was asked, by a limit.
func (f *fitted) decide(l *bucket.Limit) (all decided) {
	for subject := range f.names {
		passed, asked := f.decideOf(subject, l)
		all.passed += passed
		all.asked += asked
		if passed == asked {
			all.whole++
		}
	}
	return all
}

// empty returns the memory of a state, cleared.
func (f *fitted) empty() *bucket.State {
	f.state = bucket.State{Spans: f.state.Spans[:0]}
	return &f.state
}

// decideOf counts the requests of a subject that pass a limit, and all of them.
func (f *fitted) decideOf(subject int, l *bucket.Limit) (passed, asked uint64) {
	state, reported, all := f.empty(), l.Reported(), f.of(subject)
	for i := range all {
		a, limit := &all[i], l
		if a.reports {
			limit = reported
		}
		d := limit.Decide(state, a.at, bucket.Demand{Cost: a.cost})
		if a.cost > 0 {
			asked++
			if d.Allowed() {
				passed++
			}
		}
		if d.Allowed() || limit.ChargedAnyway(a.cost) {
			limit.Charge(state, a.at, bucket.Demand{Cost: a.cost}, d)
		}
	}
	return passed, asked
}

// passesWhole reports whether a limit denies no request of a subject.
func (f *fitted) passesWhole(subject int, l *bucket.Limit) bool {
	state, reported, all := f.empty(), l.Reported(), f.of(subject)
	for i := range all {
		a, limit := &all[i], l
		if a.reports {
			limit = reported
		}
		d := limit.Decide(state, a.at, bucket.Demand{Cost: a.cost})
		if !d.Allowed() && a.cost > 0 {
			return false
		}
		limit.Charge(state, a.at, bucket.Demand{Cost: a.cost}, d)
	}
	return true
}

// failsAtMost returns a function that reports whether a limit lets all except the given
// number of subjects pass entirely.
func (f *fitted) failsAtMost(maxFailed int) func(*bucket.Limit) bool {
	return func(l *bucket.Limit) bool {
		failed := 0
		for subject := range f.names {
			if subject == f.skipped || f.passesWhole(subject, l) {
				continue
			}
			if failed++; failed > maxFailed {
				return false
			}
		}
		return true
	}
}

// need returns what a subject alone needs.
func (f *fitted) need(subject int) Need {
	n := Need{Subject: f.names[subject], index: subject}
	for _, a := range f.of(subject) {
		if a.cost > 0 {
			n.Asked++
		}
	}
	s := search{limit: f.limit, suffices: func(l *bucket.Limit) bool { return f.passesWhole(subject, l) }}
	n.Requests, n.Burst, _ = s.smallest()
	return n
}

// compare orders needs by size. None is the largest.
func (n *Need) compare(other *Need) int {
	if none := n.Requests == 0; none != (other.Requests == 0) {
		if none {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(n.Requests, other.Requests), cmp.Compare(n.Burst, other.Burst), cmp.Compare(n.Asked, other.Asked), cmp.Compare(other.Subject, n.Subject))
}

// needs returns the largest needs, at most n, of the selected subjects. Most are skipped
// after one look: they pass with the least of the largest so far.
func (f *fitted) needs(n int, isMeant func(subject int) bool) []Need {
	var largest []Need
	var least *bucket.Limit
	for subject := range f.names {
		if !isMeant(subject) || least != nil && f.passesWhole(subject, least) {
			continue
		}
		largest = append(largest, f.need(subject))
		slices.SortFunc(largest, func(a, b Need) int { return b.compare(&a) })
		if len(largest) < n {
			continue
		}
		largest = largest[:n]
		if last := &largest[n-1]; last.Requests > 0 {
			least = f.with(last.Requests, last.Burst)
		}
	}
	return largest
}

// with returns the limit with other numbers, or nil if they are not valid. burst is 0 if
// the algorithm has none.
func (f *fitted) with(requests, burst int64) *bucket.Limit {
	return withNumbers(f.limit, requests, burst)
}

func withNumbers(l *bucket.Limit, requests, burst int64) *bucket.Limit {
	spec := l.Spec
	spec.Requests, spec.Burst = requests, burst
	changed, err := bucket.NewLimit(spec)
	if err != nil {
		return nil
	}
	return changed
}

// search looks for the smallest sufficient numbers of a limit.
type search struct {
	limit    *bucket.Limit
	suffices func(*bucket.Limit) bool
}

// smallest returns them, or false if no valid ones suffice.
func (s *search) smallest() (requests, burst int64, ok bool) {
	requests, ok = s.requests()
	if !ok {
		return 0, 0, false
	}
	return requests, s.burst(requests), true
}

func (s *search) with(requests, burst int64) bool {
	l := withNumbers(s.limit, requests, burst)
	return l != nil && s.suffices(l)
}

// burstOf returns the burst for a number of requests, in the same proportion as in the
// file.
func (s *search) burstOf(requests int64) int64 {
	if !s.limit.Algorithm.IsBucket() {
		return 0
	}
	of := uint64(max(1, s.limit.Requests))
	hi, lo := bits.Mul64(uint64(requests), uint64(max(1, s.limit.Burst))) // up to 104 bits
	if hi >= of {
		return bucket.MaxRequests
	}
	whole, rest := bits.Div64(hi, lo, of)
	if rest > 0 {
		whole++
	}
	return int64(min(whole, bucket.MaxRequests))
}

// exact returns the nearest numbers to these requests that the limit can count, and the
// burst beside them: no less for more requests.
func (s *search) exact(requests int64) (exact, burst int64) {
	spec := s.limit.Spec
	spec.Requests, spec.Burst = requests, s.burstOf(requests)
	spec = spec.Exact()
	if spec.Burst == 0 && spec.Algorithm.IsBucket() {
		spec.Burst = spec.Requests
	}
	return spec.Requests, spec.Burst
}

// requests returns the smallest ones that suffice.
func (s *search) requests() (n int64, ok bool) {
	maxRequests := s.limit.Algorithm.MaxRequests()
	low, high := int64(0), min(maxRequests, max(1, s.limit.Requests))
	for !s.with(s.exact(high)) {
		if high == maxRequests {
			return 0, false
		}
		low, high = high, min(2*high, maxRequests)
	}
	n, _ = s.exact(halve(low, high, func(n int64) bool { return s.with(s.exact(n)) }))
	return n, true
}

// burst returns the smallest one that suffices with the given requests.
func (s *search) burst(requests int64) int64 {
	if !s.limit.Algorithm.IsBucket() {
		return 0
	}
	_, high := s.exact(requests)
	return halve(0, high, func(n int64) bool { return s.with(requests, n) })
}

// halve returns a number above low, up to high, that suffices while the one before it
// does not; low does not suffice, and high does.
func halve(low, high int64, suffices func(int64) bool) int64 {
	for high-low > 1 {
		if middle := low + (high-low)/2; suffices(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}
