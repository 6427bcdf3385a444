package replay_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/replay"
)

// A run with numbers and costs beyond 32 bits is decided again as it was.
func TestReplayDecidesLargeNumbers(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, limitOf("fixed_window", 10_000_000_000, 0))
	random := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		r.after(random.Int64N(100_000))
		d := asking(fmt.Sprintf("user=%d", random.IntN(3)), []int64{1, 1 << 32, 3_000_000_000, 10_000_000_000, bucket.MaxRequests, -(1 << 33)}[random.IntN(6)])
		if random.IntN(3) == 0 {
			d.Own = decide.Override{Set: true, Requests: 1<<40 + uint64(random.IntN(2)), Period: time.Second, Names: &decide.OwnNames{Whole: "numbers"}}
		}
		r.take(d)
	}
	report := replayed(t, replay.Options{Warn: func(s string) { t.Error(s) }}, r.log)
	if k := report.Comparison; k.Different > 0 || k.Equal < 250 {
		t.Errorf("%d equal, %d different: %+v", k.Equal, k.Different, k.First)
	}
}

// A bucket that needs very many requests gets the nearest that it can count.
func TestFitOfLargeNumbersIsExact(t *testing.T) {
	t.Parallel()
	const limits = "domain: d\ndescriptors:\n  - {key: user, rate_limit: {requests: 1000000, period: 30d, burst: 1000000}}\n"
	log := fmt.Appendf(nil, "time,user,cost,domain\n%d,u,%d,d\n", began, int64(1e15))
	f := fitsOf(t, limits, log, 1).Fits[0]
	if f.ProposedRequests != 1_000_000_000_004_400 || f.ProposedBurst != 1e15 || f.Problem != "" {
		t.Errorf("got %+v", f)
	}
	if n := passing(t, string(bytes.Replace([]byte(limits), []byte("1000000,"), fmt.Appendf(nil, "%d,", f.ProposedRequests), 1)), log); n != 0 {
		t.Errorf("%v pass with a burst that is too small", n)
	}
}
