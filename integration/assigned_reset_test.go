package integration

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// takers take for one subject again and again, at several daemons.
type takers struct {
	callers          sync.WaitGroup
	isOver           atomic.Bool
	admitted, denied atomic.Int64
}

const takersCount = 64

func sendTakers(t *testing.T, daemons []*daemon, subject string) *takers {
	all := new(takers)
	for i := range takersCount {
		all.callers.Go(func() {
			for !all.isOver.Load() {
				switch r, err := daemons[i%len(daemons)].tryAsk("api", 1, subject); {
				case err != nil || degraded(r):
					t.Errorf("%s: %v, %v", subject, r, err)
					all.isOver.Store(true)
				case ok(r):
					all.admitted.Add(1)
				default:
					all.denied.Add(1)
				}
			}
		})
	}
	t.Cleanup(all.stop)
	return all
}

func (all *takers) stop() {
	all.isOver.Store(true)
	all.callers.Wait()
}

// However often limits are reset under load, no more is admitted than the limit allows for
// each time.
func TestResetsGiveOutTheLimitOnceEach(t *testing.T) {
	t.Parallel()
	const resets = 8
	var limits strings.Builder
	limits.WriteString("domain: api\ndescriptors:\n")
	for _, a := range buckettest.Rates() {
		fmt.Fprintf(&limits, "  - {key: %s, rate_limit: {name: year, algorithm: %s, requests: 100, period: 365d}}\n", a, a)
	}
	daemons := startAll(t, 3, steered(t, limits.String(), redisFlags("cluster", redistest.Cluster(t)...)...)...)
	for _, a := range buckettest.Rates() {
		subject := a.String() + "=k"
		all := sendTakers(t, daemons, subject)
		for i := range resets {
			// The first ones come when all is gone, the others while there is plenty left.
			whenGone, denied, admitted := i < resets/2, all.denied.Load(), all.admitted.Load()
			asynctest.Eventually(t, "many are asked for", func() bool {
				return all.isOver.Load() || all.denied.Load() > denied+takersCount || !whenGone && all.admitted.Load() > admitted+10
			})
			if n := all.admitted.Load(); n > int64(100*(i+1)) {
				t.Errorf("%s: %d were admitted with a limit of 100 and %d resets", a, n, i)
			}
			if out, stderr, code := daemons[i%3].steer("", "reset", "--timeout", "1m", "--domain", "api", subject); code != 0 {
				t.Fatalf("a reset ends with %d: %s %s", code, out, stderr)
			}
		}
		denied := all.denied.Load()
		asynctest.Eventually(t, "all is gone", func() bool { return all.isOver.Load() || all.denied.Load() > denied+10*takersCount })
		all.stop()
		if n := all.admitted.Load(); n > 100*(resets+1) || n < 100*resets/2 {
			t.Errorf("%s: %d were admitted with a limit of 100 and %d resets", a, n, resets)
		}
	}
}
