package top_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/top"
)

const plenty = 64 << 20

func user(dst []byte, n uint64) []byte {
	dst = append(dst, "user-"...)
	return binary.BigEndian.AppendUint64(dst, n)
}

// exact counts exactly.
type exact struct {
	counts map[string]uint64
	total  uint64
}

func newExact() *exact { return &exact{counts: make(map[string]uint64)} }

func (e *exact) add(text []byte, n uint64) {
	e.counts[string(text)] += n
	e.total += n
}

// check holds the bounds of a summary against the exact counts.
func (e *exact) check(t *testing.T, s top.Summary) {
	t.Helper()
	if s.Total != e.total {
		t.Fatalf("the total is %d, want %d", s.Total, e.total)
	}
	known := make(map[string]bool)
	for i, c := range s.Counts {
		had := e.counts[c.Subject]
		if had > c.Count || had < c.Count-c.Error || c.Error > c.Count {
			t.Fatalf("%q had %d, which is not in %d to %d", c.Subject, had, c.Count-c.Error, c.Count)
		}
		if known[c.Subject] || i > 0 && c.Count > s.Counts[i-1].Count {
			t.Fatalf("%q is there twice, or out of order", c.Subject)
		}
		known[c.Subject] = true
	}
	for text, had := range e.counts {
		if had > s.Floor && !known[text] {
			t.Fatalf("%q is not there: it had %d, and the floor is %d", text, had, s.Floor)
		}
	}
}

func TestSketchHoldsItsBounds(t *testing.T) {
	t.Parallel()
	for seed := range soaktest.Long[uint64](15, 1500) {
		r := rand.New(rand.NewPCG(seed, 1))
		limit := int64(r.IntN(6000))
		budget := top.NewBudget(int64(r.IntN(8000)))
		s, want := top.NewSketch(budget, func() int64 { return limit }), newExact()
		subjects := 1 + r.Uint64N(400)
		for range 3000 {
			text := user(nil, min(r.Uint64N(subjects), r.Uint64N(subjects)))
			text = append(text, strings.Repeat("x", int(text[len(text)-1])%4*60)...)
			n := 1 + r.Uint64N(5)
			s.Add(text, n)
			want.add(text, n)
			if r.IntN(500) == 0 {
				limit = int64(r.IntN(6000)) // others come and go
			}
		}
		want.check(t, s.Summary())
		if s.Reset(); budget.Held() != 0 {
			t.Fatalf("seed %d: %d bytes are held after all were given back", seed, budget.Held())
		}
	}
}

func TestEachWindowHoldsItsBounds(t *testing.T) {
	t.Parallel()
	for seed := range soaktest.Long[uint64](2, 50) {
		r := rand.New(rand.NewPCG(seed, 2))
		budget := top.NewBudget(int64(2000 + r.IntN(100_000)))
		tp := top.New(budget)
		var events []struct {
			at   time.Duration
			text []byte
			n    uint64
		}
		now := time.Duration(0)
		for range 4000 {
			text, n := user(nil, min(r.Uint64N(300), r.Uint64N(300))), 1+r.Uint64N(3)
			tp.Add(now, text, n)
			events = append(events, struct {
				at   time.Duration
				text []byte
				n    uint64
			}{now, text, n})
			now += time.Duration(r.IntN(2000)) * time.Millisecond
			if r.IntN(1000) == 0 {
				now += time.Duration(r.IntN(100)) * time.Minute
			}
			if r.IntN(100) > 0 {
				continue
			}
			for w, maxSpan := range map[top.Window]time.Duration{top.Minute: time.Minute, top.Quarter: 15 * time.Minute, top.Hour: time.Hour} {
				got, span := tp.Summary(now, w), w.Span(now)
				if span > maxSpan || span < min(now, maxSpan*4/5) {
					t.Fatalf("%s covers %s at %s", w, span, now)
				}
				want := newExact()
				for _, e := range events {
					if e.at >= now-span {
						want.add(e.text, e.n)
					}
				}
				want.check(t, got)
				if n := tp.Total(now, w); n != want.total {
					t.Fatalf("the total is %d, want %d", n, want.total)
				}
			}
		}
		if tp.Close(); budget.Held() != 0 {
			t.Fatalf("%d bytes are held after the end", budget.Held())
		}
		tp.Add(now, user(nil, 1), 1)
		if got := tp.Summary(now, top.Hour); got.Total != 0 || budget.Held() != 0 {
			t.Fatalf("after the end it counts %+v", got)
		}
	}
}

// The 10,000,000 takes of 1,000,000 subjects, whose k-th most frequent takes k^-1.1 as
// much as the first, all in one pane and spread over an hour.
func TestTop100OfZipfAreThere(t *testing.T) {
	t.Parallel()
	for seed, takes := range soaktest.Long([]int{500_000, 100_000}, []int{10_000_000, 1_000_000, 1_000_000}) {
		t.Run(fmt.Sprint(takes, " takes ", seed), func(t *testing.T) {
			t.Parallel()
			budget := top.NewBudget(plenty)
			atOnce, spread := top.New(budget), top.New(budget)
			counts := make([]uint64, 1_000_000)
			zipf := rand.NewZipf(rand.New(rand.NewPCG(uint64(seed), 3)), 1.1, 1, uint64(len(counts)-1))
			const over = 48 * time.Minute // so that all of it is in the hour
			var room [top.MaxSubject]byte
			for i := range takes {
				n := zipf.Uint64()
				counts[n]++
				text := user(room[:0], n)
				atOnce.Add(0, text, 1)
				spread.Add(over*time.Duration(i)/time.Duration(takes), text, 1)
			}
			minute := atOnce.Summary(0, top.Minute)
			holdsFirst(t, minute, counts, takes)
			hour := spread.Summary(over-1, top.Hour)
			holdsFirst(t, hour, counts, takes)
		})
	}
}

// A thousand rules are in use, and one of them has as many subjects as there are. What the
// others do not need is for that one.
func TestTop100OfOneRuleAmongAThousandAreThere(t *testing.T) {
	t.Parallel()
	const over = 48 * time.Minute
	takes := soaktest.Long(50_000, 500_000)
	budget := top.NewBudget(plenty)
	one, others := top.New(budget), make([]*top.Top, 999)
	for i := range others {
		others[i] = top.New(budget)
	}
	counts := make([]uint64, 1_000_000)
	zipf := rand.NewZipf(rand.New(rand.NewPCG(5, 3)), 1.1, 1, uint64(len(counts)-1))
	var room [top.MaxSubject]byte
	for i := range takes {
		now := over * time.Duration(i) / time.Duration(takes)
		n := zipf.Uint64()
		counts[n]++
		one.Add(now, user(room[:0], n), 1)
		others[i%len(others)].Add(now, user(room[:0], uint64(i%20)), 1)
	}
	holdsFirst(t, one.Summary(over-1, top.Hour), counts, takes)
	if n := budget.Held(); n > plenty {
		t.Errorf("%d bytes are held", n)
	}
}

// holdsFirst fails unless the 100 largest counts are in a summary, within its bounds.
func holdsFirst(t *testing.T, s top.Summary, counts []uint64, total int) {
	t.Helper()
	got := make(map[string]top.Count)
	for _, c := range s.Counts {
		got[c.Subject] = c
	}
	if s.Total != uint64(total) {
		t.Errorf("it counted %d of %d", s.Total, total)
	}
	widest, best := uint64(0), first(counts, 100)
	for _, n := range best {
		c, ok := got[string(user(nil, n))]
		if !ok || counts[n] > c.Count || counts[n] < c.Count-c.Error {
			t.Fatalf("of %d that had %d it says %+v, there %t", n, counts[n], c, ok)
		}
		widest = max(widest, c.Error)
	}
	t.Logf("%d are listed, nobody else had more than %d; of the first 100 the widest bound is %d, and the last had %d",
		len(s.Counts), s.Floor, widest, counts[best[99]])
}

// first returns the indices of the n largest counts.
func first(counts []uint64, n int) []uint64 {
	indices := make([]uint64, len(counts))
	for i := range indices {
		indices[i] = uint64(i)
	}
	slices.SortFunc(indices, func(a, b uint64) int { return int(counts[b]) - int(counts[a]) })
	return indices[:n]
}

func TestAnswersOfDaemonsAddUp(t *testing.T) {
	t.Parallel()
	for seed := range soaktest.Long[uint64](6, 600) {
		r := rand.New(rand.NewPCG(seed, 5))
		rules := map[string]*exact{"a": newExact(), "b": newExact(), "c": newExact()}
		var sum top.Answer
		total := uint64(0)
		for range 1 + r.IntN(4) {
			var a top.Answer
			for name, want := range rules {
				s := top.NewSketch(top.NewBudget(plenty), func() int64 { return 30_000 })
				for range r.IntN(2000) {
					text := user(nil, min(r.Uint64N(900), r.Uint64N(900)))
					s.Add(text, 1)
					want.add(text, 1)
				}
				total, a.Total = total+s.Total(), a.Total+s.Total()
				if r.IntN(4) == 0 { // as if there were too many rules
					a.Rest = max(a.Rest, s.Total())
				} else {
					a.Rules = append(a.Rules, top.RuleSummary{Domain: "d", Rule: name, Summary: s.Summary()})
				}
			}
			got, err := top.DecodeAnswer(a.Bounded(r.IntN(2 * top.MaxRows)).Encode())
			if err != nil {
				t.Fatal(err)
			}
			sum = sum.Plus(got)
		}
		rows, floor := sum.Rows(r.IntN(top.MaxRows))
		known := make(map[string]bool)
		for i, row := range rows {
			had := rules[row.Rule].counts[row.Subject]
			if had > row.Count.Count || had < row.Count.Count-row.Error || i > 0 && row.Count.Count > rows[i-1].Count.Count {
				t.Fatalf("of %d it says %+v", had, row)
			}
			known[row.Rule+row.Subject] = true
		}
		for name, want := range rules {
			for text, had := range want.counts {
				if had > floor && !known[name+text] {
					t.Fatalf("%q is not there: it had %d, and the floor is %d", text, had, floor)
				}
			}
		}
		if sum.Total != total {
			t.Fatalf("the total is %d, want %d", sum.Total, total)
		}
	}
}

func TestBudgetIsShared(t *testing.T) {
	t.Parallel()
	budget := top.NewBudget(100_000)
	one, other := top.New(budget), top.New(budget)
	now := time.Duration(0)
	for i := range uint64(10_000) {
		one.Add(now, user(nil, i), 1)
	}
	if n := budget.Held(); n < 10_000 || n > 100_000*18/75 {
		t.Errorf("alone it holds %d bytes", n)
	}
	for range 400 { // all panes of both fill
		for i := range soaktest.Long[uint64](100, 1000) {
			one.Add(now, user(nil, i), 1)
			other.Add(now, user(nil, i), 1)
		}
		if budget.Held() > 100_000 {
			t.Fatalf("%d bytes are held", budget.Held())
		}
		now += 10 * time.Second
	}
	for _, tp := range []*top.Top{one, other} {
		if s := tp.Summary(now-1, top.Hour); len(s.Counts) < 50 { // of 1,000, or of 100
			t.Errorf("one has no more than %d subjects", len(s.Counts))
		}
	}
	now += 2 * time.Hour
	one.Tick(now)
	other.Tick(now)
	if n := budget.Held(); n != 0 {
		t.Errorf("%d bytes are held for what was long ago", n)
	}
}

func TestConcurrentAddsAreAllCounted(t *testing.T) {
	t.Parallel()
	tp := top.New(top.NewBudget(plenty))
	done := make(chan bool)
	for range 4 {
		go func() {
			for i := range uint64(20_000) {
				tp.Add(time.Duration(i)*time.Millisecond, user(nil, i%2000), 1)
			}
			done <- true
		}()
	}
	for range 4 {
		tp.Tick(15 * time.Second)
		<-done
	}
	if s := tp.Summary(20*time.Second, top.Minute); s.Total != 80_000 {
		t.Errorf("%d were counted", s.Total)
	}
}

func TestSubjectsAreTold(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	for _, tc := range []struct {
		entries, want []bucket.Entry
		cut           bool
	}{
		{[]bucket.Entry{{Key: "user", Value: "a"}, {Key: "b"}}, []bucket.Entry{{Key: "user", Value: "a"}, {Key: "b"}}, false},
		{[]bucket.Entry{{Key: "user", Value: long}, {Key: "b"}}, []bucket.Entry{{Key: "user", Value: long[:240]}}, true},
		{[]bucket.Entry{{Key: long, Value: "a"}}, []bucket.Entry{{Key: long[:245]}}, true},
	} {
		text := top.AppendSubject(nil, tc.entries)
		if got, cut := top.Entries(string(text)); !slices.Equal(got, tc.want) || cut != tc.cut || len(text) > top.MaxSubject {
			t.Errorf("of %d bytes it reads %q, cut %t", len(text), got, cut)
		}
	}
	if a, b := top.AppendSubject(nil, []bucket.Entry{{Key: "k", Value: long + "a"}}), top.AppendSubject(nil, []bucket.Entry{{Key: "k", Value: long + "b"}}); string(a) == string(b) {
		t.Error("long subjects that end in different ways are one")
	}
}

func FuzzSubject(f *testing.F) {
	f.Add("user", "alice", "k", "v", []byte("w\x04user"))
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string, text []byte) {
		top.Entries(string(text)) // whatever it is
		entries := []bucket.Entry{{Key: k1, Value: v1}, {Key: k2, Value: v2}}
		text = top.AppendSubject(text, entries)[len(text):]
		got, cut := top.Entries(string(text))
		if len(text) > top.MaxSubject || !cut && !slices.Equal(got, entries) {
			t.Errorf("%q become %q, and these %q", entries, text, got)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"rules":[{"domain":"d","rule":"r","summary":{"counts":[{"s":"dw==","c":3,"e":1}],"floor":2,"total":9}}],"rest":1,"total":10,"span":5}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if q, err := top.DecodeQuestion(text); err == nil {
			_, _ = q.Kind.String(), q.Window.String()
		}
		a, err := top.DecodeAnswer(text)
		if err != nil {
			return
		}
		again, err := top.DecodeAnswer(a.Encode())
		if err != nil || again.Total != a.Total {
			t.Fatalf("%s becomes %+v, %v", text, again, err)
		}
		a.Plus(again).Rows(10)
	})
}

func TestAnswersHaveBoundedBytes(t *testing.T) {
	t.Parallel()
	var a top.Answer
	for i := range uint64(top.MaxRules) {
		s := top.Summary{Total: 1}
		for j := range uint64(50) {
			text := append(user(nil, j), strings.Repeat("x", top.MaxSubject-13)...)
			s.Counts = append(s.Counts, top.Count{Subject: string(text), Count: j * i})
		}
		a.Rules = append(a.Rules, top.RuleSummary{Domain: "d", Rule: strings.Repeat(fmt.Sprint(i, " "), 3000), Summary: s})
	}
	text := a.Encode()
	got, err := top.DecodeAnswer(text)
	if err != nil || len(text) > top.MaxAnswerBytes || len(got.Rules) == 0 {
		t.Errorf("%d bytes, %d rules, %v", len(text), len(got.Rules), err)
	}
}

// To put an answer together takes milliseconds, and there may be many at a time. A
// request that is denied meanwhile does not wait for them, and is counted.
func TestAddDoesNotWaitForThoseWhoLookBack(t *testing.T) {
	t.Parallel()
	tp := top.New(top.NewBudget(plenty))
	const panes = 4
	release := tp.LookBack()
	added := make(chan struct{})
	go func() {
		defer close(added)
		for i := range panes {
			tp.Add(time.Duration(i)*top.PaneLength, user(nil, 1), 1)
		}
	}()
	asynctest.Eventually(t, "all are added", func() bool {
		select {
		case <-added:
			return true
		default:
			return false
		}
	})
	release()
	if s := tp.Summary((panes-1)*top.PaneLength, top.Minute); s.Total != panes || len(s.Counts) != 1 || s.Counts[0].Count != panes {
		t.Errorf("got %+v", s)
	}
}
