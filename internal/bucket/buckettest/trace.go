package buckettest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Trace is a history of requests on a few keys, and what the oracle says to
// each. It can be run on any store whose clock can be set.
type Trace struct {
	Ops []Op
	// Mended counts the states that a wrong clock wrote and that an op met, by
	// algorithm.
	Mended map[bucket.Algorithm]int
	// Sees, if set, leaves of the oracle's decisions what the store tells.
	Sees func(hits []bucket.Hit, decisions []bucket.Decision)
}

// Op is one call of a store, while its clock stands at Clock.
type Op struct {
	Clock int64
	Hits  []bucket.Hit
	// GivesBack is the op whose take is given back, or -1 for a take or check.
	GivesBack int
	// Checks tells a check from a take.
	Checks bool
	// Want is what a take or check must decide.
	Want []bucket.Decision
}

// Run runs the trace on a store, whose clock it sets with setClock. It returns
// a *Mismatch at the first decision that is not the oracle's.
func (tr *Trace) Run(s bucket.Store, setClock func(int64)) error {
	ctx := context.Background()
	got := make([][]bucket.Decision, len(tr.Ops))
	for i, op := range tr.Ops {
		setClock(op.Clock)
		if op.GivesBack >= 0 {
			if err := s.GiveBack(ctx, op.Hits, got[op.GivesBack]); err != nil {
				return fmt.Errorf("op %d: give back: %w", i, err)
			}
			continue
		}
		got[i] = make([]bucket.Decision, len(op.Hits))
		decide := s.Take
		if op.Checks {
			decide = s.Check
		}
		if err := decide(ctx, op.Hits, got[i]); err != nil {
			return fmt.Errorf("op %d: %s: %w", i, op.verb(), err)
		}
		want := slices.Clone(op.Want)
		if tr.Sees != nil {
			tr.Sees(op.Hits, want)
		}
		if !slices.Equal(got[i], want) {
			return &Mismatch{Trace: tr, Op: i, Got: got[i]}
		}
	}
	return nil
}

// verb says what an op that decides does.
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
}

// Error shows the trace up to the wrong decision.
func (m *Mismatch) Error() string {
	return fmt.Sprintf("op %d: not as the oracle says; got\n%swanted, after this history:\n%s",
		m.Op, formatDecisions(m.Got), (&Trace{Ops: m.Trace.Ops[:m.Op+1]}).String())
}

// Shrink leaves out of the trace what it can while it still fails on what open
// returns: a store without a history, and the setter of its clock.
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

// without returns copies of the trace that lack op i and its give-back, or
// one of the op's hits, with the oracle's word on what is left.
func (tr *Trace) without(i int) []*Trace {
	var shorter []*Trace
	moved := make([]int, len(tr.Ops)) // where each op is then
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

// NewTrace asks the oracle what each of the ops must decide.
func NewTrace(ops []Op) *Trace {
	o := NewOracle()
	tr := &Trace{Ops: ops, Mended: o.moved}
	for i := range ops {
		tr.ask(o, i)
	}
	return tr
}

func (tr *Trace) ask(o *Oracle, i int) {
	op := &tr.Ops[i]
	switch {
	case op.GivesBack >= 0:
		o.GiveBack(op.Clock, op.Hits, tr.Ops[op.GivesBack].Want)
	case op.Checks:
		op.Want = o.Check(op.Clock, op.Hits)
	default:
		op.Want = o.Take(op.Clock, op.Hits)
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
		fmt.Fprintf(&b, " %ss", op.verb())
		for _, h := range op.Hits {
			fmt.Fprintf(&b, " %d of %s at %s, role %d;", h.Cost, limits[h.Limit], h.Key, h.Role)
		}
		fmt.Fprintf(&b, "\n%s", formatDecisions(op.Want))
	}
	return b.String()
}

func describe(l *bucket.Limit) string {
	s := fmt.Sprintf("%s %d per %v", l.Algorithm, l.Requests, l.Period)
	if l.Algorithm.IsBucket() {
		s += fmt.Sprintf(", burst %d, quantum %dus", l.Burst, l.Quantum)
	}
	if l.SubWindows != 0 {
		s += fmt.Sprintf(", %d sub-windows", l.SubWindows)
	}
	if l.Postpaid {
		s += ", postpaid"
	}
	return s
}

func formatDecisions(ds []bucket.Decision) string {
	var b strings.Builder
	for _, d := range ds {
		fmt.Fprintf(&b, "        remaining %d, retry %d, reset %d, wait %d, at %d", d.Remaining,
			d.RetryAfter.Microseconds(), d.ResetAfter.Microseconds(), d.Wait.Microseconds(), d.At)
		if d.RetryAfter == bucket.Never {
			b.WriteString(" (never)")
		}
		if d.Degraded {
			b.WriteString(" (degraded)")
		}
		b.WriteByte('\n')
	}
	return b.String()
}
