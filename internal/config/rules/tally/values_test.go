package tally_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/heaptest"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// valuesRig is a rule that counts by value, with the clock of its ticks.
type valuesRig struct {
	t     *testing.T
	rules *rules.Set
	rule  *rules.Rule
	now   time.Duration
	// counted is how many descriptors were, and left how many of these the values that
	// lost their place had at most.
	counted, left uint64
}

func newValuesRig(t *testing.T) *valuesRig {
	t.Helper()
	l := limitsfile.NewLive(filetest.Write(t, t.TempDir(), "a.yaml", "domain: d\ndescriptors: [{key: k, value_to_metric: true, rate_limit: {unit: day}}]\n"), nil)
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	return &valuesRig{t: t, rules: l.Rules(), rule: l.Rules().Domain("d").Rules()[0]}
}

func (r *valuesRig) count(value string, times int) {
	for range times {
		r.rule.Count(tally.Denied, []bucket.Entry{{Key: "k", Value: value}}).AddHits(tally.Hits{Over: 1})
		r.counted++
	}
}

// fill has as many values as there may be, each counted so often.
func (r *valuesRig) fill(times int) {
	for i := range tally.MaxRuleValues {
		r.count(fmt.Sprint("old-", i), times)
	}
}

// tenMinutes is long enough for values to be idle.
func (r *valuesRig) tenMinutes() {
	for range 60 {
		r.now += tally.TickEvery
		r.rules.Tick(r.now)
	}
}

// values returns what is counted by value, and how many of these begin so. All that was
// counted must be in it, but for what has left.
func (r *valuesRig) values(prefix string) (counts map[string]uint64, n int) {
	r.t.Helper()
	counts = make(map[string]uint64)
	sum, hits := uint64(0), uint64(0)
	for _, v := range r.rule.Counts.Values() {
		counts[v.Value] = v.Of(tally.Denied)
		sum += v.Of(tally.Denied)
		hits += v.Hits().Over
		if strings.HasPrefix(v.Value, prefix) {
			n++
		}
	}
	if sum > r.counted || sum+r.left < r.counted || hits != sum || len(counts) > tally.MaxRuleValues+1 {
		r.t.Fatalf("%d and %d of %d are counted, by %d values", sum, hits, r.counted, len(counts))
	}
	return counts, n
}

// Values that come again stay, however many others there are, and those that do not make
// room.
func TestIdleValuesMakeRoomForOthers(t *testing.T) {
	t.Parallel()
	r := newValuesRig(t)
	r.fill(1)
	made := 0
	flood := func() {
		for range 20_000 {
			r.count(fmt.Sprint("made-up-", made), 1)
			made++
		}
	}
	flood()
	r.tenMinutes() // from here on it is known who comes
	for i := range 900 {
		r.count(fmt.Sprint("old-", i), 1)
	}
	flood()
	r.tenMinutes()
	r.left = 100
	r.count("new", 3)
	if counts, n := r.values("old-"); n != 900 || counts["new"] != 3 {
		t.Errorf("%d of the 900 that came again are left, new has %d", n, counts["new"])
	}
	flood() // which takes the other places
	for range 3 {
		for i := range 900 {
			r.count(fmt.Sprint("old-", i), 1)
		}
		r.count("new", 1)
		flood()
		r.tenMinutes()
		r.left += 99
	}
	if counts, n := r.values("old-"); n != 900 || counts["new"] != 6 {
		t.Errorf("%d of 900 are left, new has %d", n, counts["new"])
	}
}

func TestIdleValuesStayWhileThereIsRoom(t *testing.T) {
	t.Parallel()
	r := newValuesRig(t)
	r.fill(1)
	for range 3 {
		r.tenMinutes()
	}
	if _, n := r.values("old-"); n != tally.MaxRuleValues {
		t.Errorf("%d of %d are kept", n, tally.MaxRuleValues)
	}
}

func TestValuesWithoutAPlaceTakeNoMemory(t *testing.T) {
	before := heaptest.InUse()
	r := newValuesRig(t)
	r.fill(1)
	filled := heaptest.InUse()
	for i := range 20_000 {
		r.count(fmt.Sprint(i, strings.Repeat("x", 240)), 1)
	}
	if took := heaptest.InUse() - filled; took > 10<<10 {
		t.Errorf("values that are not kept take %d bytes, beside %d", took, filled-before)
	}
	runtime.KeepAlive(r)
}
