package assigntest

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// testModel makes random changes in a store, and compares it with Change.Apply and a map.
func testModel(t *testing.T, open opener) {
	clock := asynctest.NewClock()
	s := open(t, Options{Clock: clock.Micros})
	r := rand.New(rand.NewPCG(3, 4))
	m := Model{}
	for range 250 {
		clock.Move(time.Duration(r.IntN(3)) * time.Second)
		var changes []assign.Change
		for range 1 + r.IntN(8) {
			changes = append(changes, m.RandomChange(r, clock.Micros()))
		}
		for i, got := range Apply(t, s, changes...) {
			if wrong := m.Apply(&changes[i], got, clock.Micros()); wrong != "" {
				t.Fatal(wrong)
			}
		}
	}
	for text, a := range m {
		if got := s.Table().Get(a.Subject).InForce(clock.Micros()); !reflect.DeepEqual(got, a.InForce(clock.Micros())) {
			t.Errorf("%s: got %+v, want %+v", text, got, a)
		}
	}
}

// Model is what a store should contain, by the texts of subjects.
type Model map[string]*assign.Assignment

// Apply makes a change in the model, and returns how a store's result for it differs, or
// "".
func (m Model) Apply(c *assign.Change, got assign.Result, now int64) (wrong string) {
	text := c.Text()
	before, after, outcome := c.Apply(m[text], now)
	if after != nil && (outcome == assign.Created || outcome == assign.Replaced) {
		if got.After != nil {
			after.Stamp(got.After.ETag, now)
		}
		m[text] = after
	}
	if outcome == assign.Deleted {
		delete(m, text)
	}
	if want := (assign.Result{Outcome: outcome, Before: before, After: after}); !reflect.DeepEqual(got, want) {
		return fmt.Sprintf("%+v\nof     %+v:\ngot  %d %+v\n     %+v\nwant %d %+v\n     %+v", *c, m[text], got.Outcome, got.Before, got.After, outcome, before, after)
	}
	return ""
}

// RandomChange returns a change of few subjects and parts, so that changes meet.
func (m Model) RandomChange(r *rand.Rand, now int64) assign.Change {
	s := Subject(fmt.Sprint("d", r.IntN(2)), []string{"a", "b{", "c|d=e", "é \" \\ <&>\x00\x1b\n\x7f\u009b\u202e\u2028"}[r.IntN(4)])
	texts := func() (by, reason string) {
		return []string{"ann", `a/"é"\`}[r.IntN(2)], []string{"", "asked", "x/<y>"}[r.IntN(3)]
	}
	c := assign.Change{Subject: s}
	c.By, c.Reason = texts()
	for range r.IntN(3) {
		l := assign.Layer{Terms: randomTerms(r)}
		if l.IsEmpty() {
			continue
		}
		l.By, l.Reason = texts()
		if r.IntN(2) == 0 {
			// Few different times, so that ends are often the same.
			l.Until = (now/2_000_000 + r.Int64N(3)) * 2_000_000
		}
		c.Set = append(c.Set, l)
	}
	c.Remove = assign.Parts{
		Plan: r.IntN(5) == 0, Calendar: r.IntN(8) == 0, Unlimited: r.IntN(5) == 0, Block: r.IntN(5) == 0,
		Numbers: r.IntN(8) == 0, Rest: r.IntN(6) == 0, Temporary: r.IntN(6) == 0,
	}
	if r.IntN(5) == 0 || !c.Sets() {
		c.Remove.Limits = []string{"month", "none"}
	}
	switch held := m[s.Text()]; {
	case r.IntN(6) == 0:
		c.IfMatch = assign.IfNone
	case r.IntN(4) == 0 && held != nil:
		c.IfMatch = held.ETag
	}
	return c
}

func randomTerms(r *rand.Rand) (t assign.Terms) {
	often := func() bool { return r.IntN(3) == 0 }
	if often() {
		t.Plan = []string{"p0", `p/"<é>\1`}[r.IntN(2)]
	}
	t.Unlimited, t.Blocked = often(), often()
	for _, limit := range []string{"month", "", "s/<é>"} {
		if often() {
			n := assign.Numbers{Limit: limit, Requests: []int64{0, 5, bucket.MaxRequests}[r.IntN(3)]}
			if often() {
				n.Period, n.Burst = []time.Duration{time.Millisecond, bucket.MaxPeriod}[r.IntN(2)], []int64{0, bucket.MaxRequests}[r.IntN(2)]
				n.BlockFor = []time.Duration{0, bucket.MaxBlockFor}[r.IntN(2)]
			}
			t.Numbers = append(t.Numbers, n)
		}
	}
	if r.IntN(6) == 0 {
		all := []assign.Calendar{{Starts: "15"}, {TimeZone: "Europe/Berlin"}, {Starts: "monday 06:00", TimeZone: "Asia/Kathmandu"}}
		t.Calendar = all[r.IntN(len(all))]
	}
	return t
}

// RandomAssignment returns an assignment of varying shape, as a store would return it.
func RandomAssignment(r *rand.Rand) *assign.Assignment {
	const now = 1_780_000_000_000_000
	for {
		var a *assign.Assignment
		for range 4 {
			c := Model{}.RandomChange(r, now)
			c.Subject, c.IfMatch = Subject("api", "x"), ""
			_, a, _ = c.Apply(a, now)
		}
		if a != nil {
			a.Stamp("17-1", now)
			return a
		}
	}
}
