package replay_test

import (
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
