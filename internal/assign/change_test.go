package assign_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
)

// said has what a layer says of each part, 0 for nothing: of the plan, the calendar,
// unlimited, the block, and then the numbers of each limit.
type said [numbers + maxLimits]byte

const (
	plans = iota
	calendars
	unlimited
	block
	numbers
	maxLimits = 18
)

func saidBy(t assign.Terms) (s said) {
	for _, n := range t.Numbers {
		limit, _ := strconv.Atoi(n.Limit)
		s[numbers+limit] = byte(1 + n.Requests)
	}
	if t.Plan != "" {
		s[plans] = t.Plan[0]
	}
	if t.Calendar.Starts != "" {
		s[calendars] = t.Calendar.Starts[0]
	}
	if t.Unlimited {
		s[unlimited] = 1
	}
	if t.Blocked {
		s[block] = 1
	}
	return s
}

// slowLayer has a layer that was ever put on top. Nothing is dropped from it because
// another hides it.
type slowLayer struct {
	said
	until  int64 // 0: the base
	reason string
}

// slow is an assignment that keeps all layers, the base first, and finds by trying every
// moment what is in force and what ever will be.
type slow []slowLayer

// lastMoment is after the last end in these tests.
const lastMoment = 24

// giver returns which layer gives a part at a moment, or -1: the topmost, and of a block
// or unlimited, which are the same in all layers, the one that lasts longest.
func (s slow) giver(part int, now int64) int {
	giver, last := -1, int64(0)
	for i := range s {
		until := s[i].until
		if until == 0 {
			until = lastMoment
		}
		if s[i].said[part] == 0 || until <= now || (part == block || part == unlimited) && until < last {
			continue
		}
		giver, last = i, until
	}
	return giver
}

// inForce returns what is in force at a moment.
func (s slow) inForce(now int64) (all said) {
	for part := range all {
		if i := s.giver(part, now); i >= 0 {
			all[part] = s[i].said[part]
		}
	}
	return all
}

// isSeen reports whether layer i gives a part at some moment from now on.
func (s slow) isSeen(part, i int, now int64) bool {
	for moment := now; moment < lastMoment; moment++ {
		if s.giver(part, moment) == i {
			return true
		}
	}
	return false
}

// seen returns only what is in force at some moment from now on, without what is empty.
func (s slow) seen(now int64) (all slow) {
	for i, l := range s {
		kept := slowLayer{until: l.until, reason: l.reason}
		for part, value := range l.said {
			if value != 0 && s.isSeen(part, i, now) {
				kept.said[part] = value
			}
		}
		if kept.said != (said{}) {
			all = append(all, kept)
		}
	}
	return all
}

// removes reports whether a part is among those to remove, of the base or a temporary layer.
func removes(p *assign.Parts, part int, isTemporary bool) bool {
	rest := p.Rest || p.Temporary && isTemporary
	switch part {
	case block:
		return p.Block
	case plans:
		return rest || p.Plan
	case calendars:
		return rest || p.Calendar
	case unlimited:
		return rest || p.Unlimited
	}
	return rest || p.Numbers || slices.Contains(p.Limits, strconv.Itoa(part-numbers))
}

// change returns what a change makes of s.
func (s slow) change(c *assign.Change, now int64) slow {
	next := slow{{}}
	for i, l := range s {
		for part, value := range l.said {
			if value == 0 || !removes(&c.Remove, part, i > 0) {
				continue
			}
			l.said[part] = 0
			if s.isSeen(part, i, now) {
				l.reason = c.Reason
			}
		}
		if i == 0 {
			next[0] = l
		} else if l.until > now {
			next = append(next, l)
		}
	}
	for _, l := range c.Set {
		if l.Until == 0 {
			for part, value := range saidBy(l.Terms) {
				next[0].said[part] = cmp.Or(value, next[0].said[part])
			}
			next[0].reason = l.Reason
		} else if l.Until > now {
			next = append(next, slowLayer{saidBy(l.Terms), l.Until, l.Reason})
		}
	}
	return next
}

// outcome returns what a change that makes after of before should be called, both without
// what is never seen.
func outcome(before, after slow) assign.Outcome {
	limits, layers := map[int]bool{}, 0
	for _, l := range after {
		for part, value := range l.said {
			if part >= numbers && value != 0 {
				limits[part] = true
			}
		}
		if l.said != (said{block: 1}) && l.until != 0 {
			layers++
		}
	}
	same := func(a, b slowLayer) bool {
		return a.said == b.said && a.until == b.until && (b.reason == "" || a.reason == b.reason)
	}
	switch {
	case before == nil && after == nil:
		return assign.Unchanged
	case after == nil:
		return assign.Deleted
	case len(limits) > assign.MaxNumbers:
		return assign.TooManyNumbers
	case layers > assign.MaxLayers:
		return assign.TooManyLayers
	case before == nil:
		return assign.Created
	case slices.EqualFunc(before, after, same):
		return assign.Unchanged
	}
	return assign.Replaced
}

// slowOf returns an assignment in the form of the model.
func slowOf(a *assign.Assignment) (s slow) {
	if a == nil {
		return nil
	}
	for _, l := range append([]assign.Layer{a.Base}, a.Layers...) {
		if !l.IsEmpty() {
			s = append(s, slowLayer{saidBy(l.Terms), l.Until, l.Reason})
		}
	}
	return s
}

// randomChange returns a change at a time, of terms of so many limits.
func randomChange(r *rand.Rand, now int64, limits int) assign.Change {
	c := assign.Change{Subject: subject("d", "a=b"), Reason: fmt.Sprint(r.IntN(3))}
	terms := func() (t assign.Terms) {
		if r.IntN(3) == 0 {
			t.Plan = fmt.Sprint(1 + r.IntN(2))
		}
		if r.IntN(5) == 0 {
			t.Calendar.Starts = fmt.Sprint(1 + r.IntN(2))
		}
		t.Unlimited, t.Blocked = r.IntN(5) == 0, r.IntN(5) == 0
		for i := range limits {
			if r.IntN(limits+1) < 2 {
				t.Numbers = append(t.Numbers, assign.Numbers{Limit: fmt.Sprint(i), Requests: int64(r.IntN(2))})
			}
		}
		return t
	}
	for range 1 + r.IntN(2) {
		if l := (assign.Layer{Terms: terms(), Reason: []string{"", "x"}[r.IntN(2)]}); !l.IsEmpty() {
			if r.IntN(3) > 0 {
				l.Until = now + r.Int64N(lastMoment-now)
			}
			c.Set = append(c.Set, l)
		}
	}
	if r.IntN(4) == 0 {
		c.Remove = assign.Parts{
			Plan: r.IntN(3) == 0, Calendar: r.IntN(3) == 0, Unlimited: r.IntN(3) == 0, Block: r.IntN(3) == 0,
			Numbers: r.IntN(6) == 0, Rest: r.IntN(6) == 0, Temporary: r.IntN(4) == 0, Limits: []string{fmt.Sprint(r.IntN(limits))},
		}
	}
	return c
}

// TestApplyIsAsTheSlowModel holds Apply, InForce and Now against a model that drops
// nothing: at no later moment may anything else be in force, and what is kept is exactly
// what will ever be in force.
func TestApplyIsAsTheSlowModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	traces := soaktest.Long(1_000, 20_000)
	counts := map[assign.Outcome]int{}
	for range traces {
		limits := []int{2, 6, maxLimits}[r.IntN(3)]
		var held *assign.Assignment
		var model slow
		now := int64(1)
		for range 14 {
			c := randomChange(r, now, limits)
			before, after, got := c.Apply(held, now)
			next := model.change(&c, now)
			want := outcome(model.seen(now), next.seen(now))
			counts[got]++
			if got != want {
				t.Fatalf("at %d, %+v\nof   %+v\ngives %d, want %d", now, c, held, got, want)
			}
			if !reflect.DeepEqual(before, held.InForce(now)) {
				t.Fatalf("before is %+v, want %+v", before, held.InForce(now))
			}
			switch got {
			case assign.Created, assign.Replaced, assign.Deleted:
				held, model = after, next
			}
			if now += r.Int64N(4); now >= lastMoment-2 {
				break
			}
			check(t, held, model, now)
		}
	}
	for _, o := range []assign.Outcome{assign.Created, assign.Replaced, assign.Unchanged, assign.Deleted, assign.TooManyNumbers, assign.TooManyLayers} {
		if counts[o] < traces/100 {
			t.Errorf("%d is the outcome of %d changes in %d traces", o, counts[o], traces)
		}
	}
}

// check holds what is held against the model, at a moment and at all later ones.
func check(t *testing.T, held *assign.Assignment, model slow, now int64) {
	t.Helper()
	for moment := now; moment < lastMoment; moment++ {
		var got said
		if left := held.InForce(moment); left != nil {
			got = saidBy(left.Now())
		}
		if want := model.inForce(moment); got != want {
			t.Fatalf("of %+v\nat %d there is in force %v, want %v", held, moment, got, want)
		}
	}
	if got, want := slowOf(held.InForce(now)), model.seen(now); !slices.Equal(got, want) {
		t.Fatalf("at %d there is kept\n     %+v\nwant %+v", now, got, want)
	}
}

// A change does not alter what it was made of: readers may still have it.
func TestApplyAltersNothingThatIsHeld(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range soaktest.Long(200, 2000) {
		var held *assign.Assignment
		for range 6 {
			c := randomChange(r, 1, 4)
			text := fmt.Sprintf("%+v %+v", held, c)
			_, after, _ := c.Apply(held, 1)
			if again := fmt.Sprintf("%+v %+v", held, c); again != text {
				t.Fatalf("it was %s\nand is %s", text, again)
			}
			held = after
		}
	}
}

// What changes has no time yet, and what stays keeps its own.
func TestStampIsOfWhatChanged(t *testing.T) {
	t.Parallel()
	set := func(held *assign.Assignment, at int64, layers ...assign.Layer) *assign.Assignment {
		c := assign.Change{Subject: subject("d", "a=b"), Set: layers}
		_, after, _ := c.Apply(held, at)
		after.Stamp(fmt.Sprint(at), at)
		return after
	}
	a := set(nil, 1, assign.Layer{Terms: assign.Terms{Plan: "p"}})
	a = set(a, 2, assign.Layer{Terms: assign.Terms{Plan: "q"}, Until: 10})
	a = set(a, 3, assign.Layer{Terms: assign.Terms{Plan: "r"}, Until: 9})
	if got := []int64{a.Base.At, a.Layers[0].At, a.Layers[1].At}; !slices.Equal(got, []int64{1, 2, 3}) || a.ETag != "3" {
		t.Errorf("the layers are of %v, the version %s", got, a.ETag)
	}
	if a = set(a, 4, assign.Layer{Terms: assign.Terms{Unlimited: true}}); a.Base.At != 4 || a.Layers[1].At != 3 {
		t.Errorf("after a change of the base: %+v", a)
	}
}

// The reason of a whole is put back too, even none.
func TestUndoOfAReason(t *testing.T) {
	t.Parallel()
	first := assign.Change{Subject: subject("d", "a=b"), Set: []assign.Layer{{Terms: assign.Terms{Plan: "p"}}}}
	_, held, _ := first.Apply(nil, 1)
	held.Stamp("1", 1)
	second := first
	second.Set = []assign.Layer{{Terms: assign.Terms{Plan: "p"}, Reason: "why"}}
	before, after, _ := second.Apply(held, 2)
	after.Stamp("2", 2)
	undo, err := assign.Undo(second.Record(before, after))
	if err != nil {
		t.Fatal(err)
	}
	if _, back, o := undo.Apply(after, 3); o != assign.Replaced || back.Base.Reason != "" || back.Base.At != 1 {
		t.Errorf("the outcome is %d, and back is %+v", o, back)
	}
}
