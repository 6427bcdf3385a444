package buckettest

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// billReader is a store that reports what IDs have charged.
type billReader interface {
	Bill(ctx context.Context, id string, h *bucket.Hit) (b bucket.Bill, clock int64, err error)
}

// What a store reports about an ID is what its takes have charged, and what settlements made of
// it, until the ID is no longer known.
func billSaysWhatIsCharged(t *testing.T, h Harness) {
	for _, x := range eachAlgorithm(t, 100, 50) {
		s, setClock := openNow(t, h)
		reader, ok := s.(billReader)
		if !ok {
			t.Skip("this store reports no bills")
		}
		want := func(step, id string, cost, takes int64, left time.Duration) {
			t.Helper()
			b, clock, err := reader.Bill(context.Background(), id, &x)
			if err != nil || b.Total() != cost || b.Takes != takes || takes > 0 && b.Until-clock != left.Microseconds() {
				t.Errorf("%s, %s: %q has %+v at %d, %v; want %d by %d takes for %s", x.Key, step, id, b, clock, err, cost, takes, left)
			}
		}
		want("before", "a", 0, 0, 0)
		Reserve(t, s, "a", x)
		want("a take", "a", 50, 1, time.Hour)
		want("a take", "b", 0, 0, 0)
		setClock(30 * time.Minute)
		want("later", "a", 50, 1, 30*time.Minute)
		Reserve(t, s, "a", of(x, 10))
		want("a second take", "a", 60, 2, time.Hour)
		for _, used := range []int64{20, 90, 20, 0} {
			Settle(t, s, "a", of(x, used))
			want("settled", "a", used, 2, time.Hour)
		}
		Settle(t, s, "a", of(x, -10))
		want("a take undone", "a", 0, 1, time.Hour)
		Settle(t, s, "a", of(x, -50))
		want("both undone", "a", 0, 0, 0)
		Reserve(t, s, "c", of(x, 5))
		Reserve(t, s, "denied", of(x, 100))
		want("a denied take", "denied", 0, 0, 0)
		setClock(90*time.Minute - time.Microsecond)
		want("at the last moment", "c", 5, 1, time.Microsecond)
		setClock(90 * time.Minute)
		want("afterwards", "c", 0, 0, 0)
	}
}
