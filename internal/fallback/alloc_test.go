//go:build !race

// The race detector makes sync.Pool forget at random; make test runs this file
// without it.

package fallback_test

import (
	"context"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
)

// While the store is away, every request is decided here.
func TestAnswersDoNotAllocate(t *testing.T) {
	f := newFixture(t, local, 3)
	plain := hit(t, spec(local, 1e6), "local", 1)
	post := hit(t, postpaid(spec(local, 1e6)), "postpaid", 1)
	open, shut := hit(t, spec(allow, 10), "allow", 1), hit(t, spec(deny, 10), "deny", 1)
	for _, c := range []struct {
		name string
		hits []bucket.Hit
	}{
		{"local", []bucket.Hit{plain}},
		{"allow", []bucket.Hit{open}},
		{"deny", []bucket.Hit{shut}},
		{"allowed mixture", []bucket.Hit{plain, post, open}},
		{"denied mixture", []bucket.Hit{plain, post, open, shut}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := make([]bucket.Decision, len(c.hits))
			f.take(t, c.hits...)
			if n := testing.AllocsPerRun(1000, func() {
				if err := f.Take(context.Background(), c.hits, d, errDown); err != nil {
					t.Fatal(err)
				}
				if err := f.GiveBack(context.Background(), c.hits, d); err != nil {
					t.Fatal(err)
				}
				var degraded fallback.Degraded
				f.Add(&degraded, c.hits, fallback.Timeout)
				f.Count(&degraded)
			}); n > 0.5 {
				t.Errorf("%s: %v allocations an answer", c.name, n)
			}
		})
	}
}
