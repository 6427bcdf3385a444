package buckettest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Trace is a history of requests on a few keys, with the oracle's decisions. It
// can be run on any store whose clock can be set.
type Trace struct {
	Ops []Op
	// Mended counts, by algorithm, the states that a wrong clock wrote and that an
	// op met.
	Mended map[bucket.Algorithm]int
	// Large counts, by algorithm, the hits of more than 32 bits that were charged to limits
	// near the largest.
	Large map[bucket.Algorithm]int
	// Sees, if set, reduces the oracle's decisions to what the store reports.
	Sees func(hits []bucket.Hit, decisions []bucket.Decision)
}

// Op is one use of a store, at Clock, in microseconds since the Unix epoch.
type Op struct {
	Clock int64
	Hits  []bucket.Hit
	// GivesBack is the op whose take is given back, or -1 for a take or check.
	GivesBack int
	// Checks is whether this is a check, not a take.
	Checks bool
	// ID names a take, which then lasts so long, or is what a settlement settles; empty
	// for others.
	ID    string
	Lasts time.Duration
	// Settles is whether this is a settlement. Then WantSettled is what it must do.
	Settles     bool
	WantSettled []bucket.Settled
	// Want are the decisions that a take or check must return.
	Want []bucket.Decision
}

// Run runs the trace on a store, whose clock it sets with setClock. It returns
// a *Mismatch at the first decision that is not the oracle's.
func (tr *Trace) Run(s bucket.Store, setClock func(int64)) error {
	ctx := context.Background()
	got := make([][]bucket.Decision, len(tr.Ops))
	mayForget := tr.mayForget()
	for i, op := range tr.Ops {
		setClock(op.Clock)
		if op.Settles {
			if err := tr.runSettlement(s, i); err != nil {
				return err
			}
			continue
		}
		if op.GivesBack >= 0 {
			if err := s.GiveBack(ctx, op.Hits, slices.Clone(got[op.GivesBack])); err != nil {
				return fmt.Errorf("op %d: give back: %w", i, err)
			}
			continue
		}
		got[i] = make([]bucket.Decision, len(op.Hits))
		decide := s.Take
		switch {
		case op.Checks:
			decide = s.Check
		case op.ID != "":
			decide = func(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
				return s.Reserve(ctx, bucket.Reservation{ID: op.ID, Lasts: op.Lasts}, hits, decisions)
			}
		}
		if err := decide(ctx, op.Hits, got[i]); err != nil {
			return fmt.Errorf("op %d: %s: %w", i, op.verb(), err)
		}
		for j := range got[i] {
			if d := &got[i][j]; d.Ahead != 0 && d.Ahead != uint32(d.At-op.Clock) {
				return &Mismatch{Trace: tr, Op: i, Got: got[i]}
			}
			got[i][j].Seq, got[i][j].Ahead = 0, 0 // which other suites look at
		}
		want := slices.Clone(op.Want)
		for j := range op.Hits {
			if mayForget[string(op.Hits[j].Key)] {
				forgetLapsed(&got[i][j])
				forgetLapsed(&want[j])
			}
		}
		if tr.Sees != nil {
			tr.Sees(op.Hits, want)
		}
		if !slices.Equal(got[i], want) {
			return &Mismatch{Trace: tr, Op: i, Got: got[i]}
		}
	}
	return nil
}

// runSettlement runs op i, a settlement.
func (tr *Trace) runSettlement(s bucket.Store, i int) error {
	op := &tr.Ops[i]
	got := make([]bucket.Settled, len(op.Hits))
	if err := s.Settle(context.Background(), op.ID, op.Hits, got); err != nil {
		return fmt.Errorf("op %d: settle: %w", i, err)
	}
	for j := range got {
		got[j].Seq = 0
	}
	if !slices.Equal(got, op.WantSettled) {
		return &Mismatch{Trace: tr, Op: i, GotSettled: got}
	}
	return nil
}

// mayForget returns the keys of which stores may forget sooner who has lapsed: those whose
// hold changes.
func (tr *Trace) mayForget() map[string]bool {
	holds := make(map[string]time.Duration)
	changed := make(map[string]bool)
	for _, op := range tr.Ops {
		for _, h := range op.Hits {
			if !h.Limit.Algorithm.HasHolders() {
				continue
			}
			if hold, seen := holds[string(h.Key)]; seen && hold != h.Limit.Period {
				changed[string(h.Key)] = true
			}
			holds[string(h.Key)] = h.Limit.Period
		}
	}
	return changed
}

// forgetLapsed makes a release that came too late one that finds nothing.
func forgetLapsed(d *bucket.Decision) {
	if d.Released == bucket.ReleasedTooLate {
		d.Released = bucket.ReleasedNothing
	}
}

// verb names an op that decides: check or take.
func (op *Op) verb() string {
	if op.Checks {
		return "check"
	}
	return "take"
}

// Mismatch is a decision that is not the oracle's.
type Mismatch struct {
	Trace *Trace
	Op    int
	Got   []bucket.Decision
	// GotSettled is what a settlement did, if the op is one.
	GotSettled []bucket.Settled
}

// Error shows the trace up to the wrong decision.
func (m *Mismatch) Error() string {
	return fmt.Sprintf("op %d: not as the oracle says; got\n%s%swanted, after this history:\n%s",
		m.Op, formatDecisions(m.Got), formatSettled(m.GotSettled), (&Trace{Ops: m.Trace.Ops[:m.Op+1]}).String())
}

// Shrink removes ops and hits from the trace as long as it still fails. open returns a
// store without a history and the setter of its clock.
func (m *Mismatch) Shrink(open func() (s bucket.Store, setClock func(int64))) *Mismatch {
	for changed := true; changed; {
		changed = false
		for i := m.Op; i >= 0; i-- {
			for _, shorter := range m.Trace.without(i) {
				if worse, ok := shorter.Run(open()).(*Mismatch); ok {
					m, changed = worse, true
					m.Trace.Ops = m.Trace.Ops[:m.Op+1]
					break
				}
			}
			i = min(i, len(m.Trace.Ops))
		}
	}
	return m
}

// without returns shorter traces, with the oracle's decisions: one without op i and
// its give-back, and one for each hit of op i without that hit.
func (tr *Trace) without(i int) []*Trace {
	var shorter []*Trace
	moved := make([]int, len(tr.Ops)) // the new index of each op
	var rest []Op
	for j, op := range tr.Ops {
		moved[j] = len(rest)
		if j == i || op.GivesBack == i {
			continue
		}
		if op.GivesBack >= 0 {
			op.GivesBack = moved[op.GivesBack]
		}
		rest = append(rest, op)
	}
	shorter = append(shorter, NewTrace(rest))
	if tr.Ops[i].GivesBack < 0 && len(tr.Ops[i].Hits) > 1 {
		for h := range tr.Ops[i].Hits {
			ops := slices.Clone(tr.Ops)
			hits := slices.Delete(slices.Clone(ops[i].Hits), h, h+1)
			for j := range ops {
				if j == i || ops[j].GivesBack == i {
					ops[j].Hits = hits
				}
			}
			shorter = append(shorter, NewTrace(ops))
		}
	}
	for _, s := range shorter {
		s.Sees = tr.Sees
	}
	return shorter
}

// NewTrace returns a trace of the ops, with the oracle's decisions.
func NewTrace(ops []Op) *Trace {
	o := NewOracle()
	tr := &Trace{Ops: ops, Mended: o.mended, Large: map[bucket.Algorithm]int{}}
	for i := range ops {
		tr.ask(o, i)
	}
	return tr
}

func (tr *Trace) ask(o *Oracle, i int) {
	op := &tr.Ops[i]
	switch {
	case op.Settles:
		op.WantSettled = o.Settle(op.Clock, op.ID, op.Hits)
	case op.ID != "":
		op.Want = o.Reserve(op.Clock, op.ID, op.Lasts, op.Hits)
	case op.GivesBack >= 0:
		o.GiveBack(op.Clock, op.Hits, tr.Ops[op.GivesBack].Want)
	case op.Checks:
		op.Want = o.Check(op.Clock, op.Hits)
	default:
		op.Want = o.Take(op.Clock, op.Hits)
		for j, h := range op.Hits {
			if h.Limit.Capacity > bucket.MaxRequests/8 && h.Cost > 1<<32 && op.Want[j].Allowed() && isGranted(op.Hits, op.Want) {
				tr.Large[h.Limit.Algorithm]++
			}
		}
	}
}

// String shows each op, with times relative to the first one's clock.
func (tr *Trace) String() string {
	var b strings.Builder
	limits := map[*bucket.Limit]string{}
	for i, op := range tr.Ops {
		if i == 0 {
			fmt.Fprintf(&b, "  clock %d\n", op.Clock)
		}
		for _, h := range op.Hits {
			if limits[h.Limit] == "" {
				limits[h.Limit] = fmt.Sprintf("L%d", len(limits))
				fmt.Fprintf(&b, "  %s = %s\n", limits[h.Limit], describe(h.Limit))
			}
		}
		fmt.Fprintf(&b, "  %2d. %+dus", i, op.Clock-tr.Ops[0].Clock)
		if op.GivesBack >= 0 {
			fmt.Fprintf(&b, " gives back %d\n", op.GivesBack)
			continue
		}
		switch {
		case op.Settles:
			fmt.Fprintf(&b, " settles %q", op.ID)
		case op.ID != "":
			fmt.Fprintf(&b, " takes as %q for %v", op.ID, op.Lasts)
		default:
			fmt.Fprintf(&b, " %ss", op.verb())
		}
		for _, h := range op.Hits {
			fmt.Fprintf(&b, " %d of %s at %s, role %d", h.Cost, limits[h.Limit], h.Key, h.Role)
			if h.Holder != "" {
				fmt.Fprintf(&b, ", by %s", h.Holder)
			}
			b.WriteByte(';')
		}
		fmt.Fprintf(&b, "\n%s%s", formatDecisions(op.Want), formatSettled(op.WantSettled))
	}
	return b.String()
}

func describe(l *bucket.Limit) string {
	s := fmt.Sprintf("%s %d per %v", l.Algorithm, l.Requests, l.Period)
	if l.Algorithm.IsBucket() {
		s += fmt.Sprintf(", burst %d, quantum %dus", l.Burst, l.Quantum)
	}
	if l.Calendar != (bucket.Calendar{}) {
		s = fmt.Sprintf("%s %d per %s", l.Algorithm, l.Requests, l.Calendar)
	}
	if l.SubWindows != 0 {
		s += fmt.Sprintf(", %d sub-windows", l.SubWindows)
	}
	if l.BlockFor != 0 {
		s += fmt.Sprintf(", blocks for %v", l.BlockFor)
	}
	switch l.Charging() {
	case bucket.ChargesUse:
		s += ", postpaid"
	case bucket.ChargesReported:
		s += ", reported"
	}
	return s
}

func formatSettled(all []bucket.Settled) string {
	var b strings.Builder
	for _, s := range all {
		if !s.IsKnown {
			fmt.Fprintf(&b, "        unknown, at %d\n", s.At)
			continue
		}
		fmt.Fprintf(&b, "        returned %d, added %d, of %d takes; remaining %d, reset %d, at %d\n",
			s.Returned, s.Added, s.Takes, s.Remaining, s.ResetAfter.Microseconds(), s.At)
	}
	return b.String()
}

func formatDecisions(ds []bucket.Decision) string {
	var b strings.Builder
	for _, d := range ds {
		fmt.Fprintf(&b, "        remaining %d, retry %d, reset %d, wait %d, at %d", d.Remaining,
			d.RetryAfter.Microseconds(), d.ResetAfter.Microseconds(), d.Wait.Microseconds(), d.At)
		switch d.RetryAfter {
		case bucket.Never:
			b.WriteString(" (never)")
		case bucket.Unknown:
			b.WriteString(" (unknown)")
		}
		if d.Degraded {
			b.WriteString(" (degraded)")
		}
		if d.Released != 0 {
			fmt.Fprintf(&b, " (released: %v)", d.Released)
		}
		if d.Renewal != 0 {
			fmt.Fprintf(&b, " (renewal: %d)", d.Renewal)
		}
		if d.Paused != 0 {
			fmt.Fprintf(&b, " (paused %d, began: %v)", d.Paused.Microseconds(), d.PauseBegan)
		}
		if d.RoomBefore != 0 {
			fmt.Fprintf(&b, " (room before: %d)", d.RoomBefore)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Counts adds up what traces count by algorithm. The zero Counts is empty; its methods may be
// called concurrently.
type Counts struct {
	mu    sync.Mutex
	total map[bucket.Algorithm]int
}

// Add adds the counts of a trace.
func (c *Counts) Add(counts map[bucket.Algorithm]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total == nil {
		c.total = map[bucket.Algorithm]int{}
	}
	for a, n := range counts {
		c.total[a] += n
	}
}

// Total returns the sums.
func (c *Counts) Total() map[bucket.Algorithm]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.total)
}
