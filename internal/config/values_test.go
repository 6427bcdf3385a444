package config_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/heaptest"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// valuesRig is a rule that counts by value, with the clock of its ticks.
type valuesRig struct {
	t     *testing.T
	rules *config.Rules
	rule  *config.Rule
	now   time.Duration
	// counted is how many descriptors were, and left how many of these the values that
	// lost their place had at most.
	counted, left uint64
}

func newValuesRig(t *testing.T) *valuesRig {
	t.Helper()
	l := config.NewLive(filetest.Write(t, t.TempDir(), "a.yaml", "domain: d\ndescriptors: [{key: k, value_to_metric: true, rate_limit: {unit: day}}]\n"), nil)
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	return &valuesRig{t: t, rules: l.Rules(), rule: l.Rules().Domain("d").Rules()[0]}
}

func (r *valuesRig) count(value string, times int) {
	for range times {
		r.rule.Count(config.Denied, []bucket.Entry{{Key: "k", Value: value}}).AddHits(config.Hits{Over: 1})
		r.counted++
	}
}

// fill has as many values as there may be, each counted so often.
func (r *valuesRig) fill(times int) {
	for i := range config.MaxRuleValues {
		r.count(fmt.Sprint("old-", i), times)
	}
}

func (r *valuesRig) minute() {
	for range 6 {
		r.now += config.TickEvery
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
		counts[v.Value] = v.Of(config.Denied)
		sum += v.Of(config.Denied)
		hits += v.Hits().Over
		if strings.HasPrefix(v.Value, prefix) {
			n++
		}
	}
	if sum > r.counted || sum+r.left < r.counted || hits != sum || len(counts) > config.MaxRuleValues+1 {
		r.t.Fatalf("%d and %d of %d are counted, by %d values", sum, hits, r.counted, len(counts))
	}
	return counts, n
}

func TestFrequentValuesReplaceRareOnes(t *testing.T) {
	t.Parallel()
	r := newValuesRig(t)
	r.fill(1)
	r.count("new", 50)
	r.minute() // from the first tick on all are watched
	r.count("new", 50)
	r.count("rare", 9)
	r.minute()
	r.minute()
	r.left = 1
	counts, _ := r.values("")
	if n, kept := counts["new"]; !kept || n != 0 || counts["rare"] != 0 || counts[config.RestOfValues] != 109 {
		t.Fatalf("new has %d (%t), the rest %d", n, kept, counts[config.RestOfValues])
	}
	r.count("new", 3)
	if counts, _ = r.values(""); counts["new"] != 3 {
		t.Errorf("it counts %d", counts["new"])
	}
}

func TestFewValuesAreExchangedAtATime(t *testing.T) {
	t.Parallel()
	r := newValuesRig(t)
	r.fill(1)
	flood := func() {
		for i := range 400 {
			r.count(fmt.Sprint("new-", i), 20)
		}
	}
	flood()
	r.minute()
	for exchanges := 1; exchanges <= 4; exchanges++ {
		flood()
		r.minute()
		r.left += config.MaxRuleValues / 10
		if _, n := r.values("new-"); n > exchanges*config.MaxRuleValues/10 || n == 0 {
			t.Errorf("after %d minutes %d are exchanged", exchanges, n)
		}
	}
}

// Values that are about as frequent as those that are kept do not replace them, nor do
// any number of new ones.
func TestSeriesDoNotChurn(t *testing.T) {
	t.Parallel()
	r, random := newValuesRig(t), rand.New(rand.NewPCG(1, 2))
	r.fill(10)
	made := 0
	for range 10 {
		for i := range config.MaxRuleValues {
			r.count(fmt.Sprint("old-", i), 8+random.IntN(5))
		}
		for i := range 300 {
			r.count(fmt.Sprint("new-", i), 8+random.IntN(5))
		}
		for range 20_000 {
			r.count(fmt.Sprint("made-up-", made), 1)
			made++
		}
		r.minute()
	}
	if _, n := r.values("old-"); n != config.MaxRuleValues {
		t.Errorf("%d of %d are kept", n, config.MaxRuleValues)
	}
	// Those that were frequent until now stay for a while without being met.
	r.count("late", 11)
	r.minute()
	if _, n := r.values("old-"); n != config.MaxRuleValues {
		t.Errorf("a minute later %d are kept", n)
	}
}

func TestOffersTakeBoundedMemory(t *testing.T) {
	before := heaptest.InUse()
	r := newValuesRig(t)
	r.fill(1)
	filled := heaptest.InUse()
	for i := range 20_000 {
		r.count(fmt.Sprint(i, strings.Repeat("x", 240)), 1)
	}
	if took := heaptest.InUse() - filled; took > 100<<10 {
		t.Errorf("values that are not kept take %d bytes, beside %d", took, filled-before)
	}
	runtime.KeepAlive(r)
}
