package leases

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
)

func run(t *testing.T, l Load) Outcome {
	t.Helper()
	out, err := Run(l, 1)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What is admitted is what is offered, or what the limit allows.
func TestLittleIsLost(t *testing.T) {
	t.Parallel()
	for _, a := range []bucket.Algorithm{bucket.TokenBucket, bucket.FixedWindow, bucket.SlidingWindow} {
		for _, times := range []float64{0.5, 0.8, 1, 1.5, 3} {
			t.Run(fmt.Sprint(a, times), func(t *testing.T) {
				t.Parallel()
				spec := bucket.Spec{Algorithm: a, Requests: 4000, Period: time.Second, Lease: 100 * time.Millisecond}
				l := Load{Limit: spec, Clients: 8, Offered: 4000 * times, Warm: 6 * time.Second, Length: 4 * time.Second}
				out := run(t, l)
				allowed := float64(4 * 4000)
				if a == bucket.SlidingWindow && times >= 1 {
					l.Limit.Lease = 0
					allowed = float64(run(t, l).Admitted) * 10 / 11 // since each counts for a lease longer
				}
				want := min(float64(out.Offered), allowed)
				if float64(out.Admitted) < want*0.97 || float64(out.Admitted) > 4*4000*1.001 {
					t.Errorf("of %d that were offered %d are admitted, not %.0f", out.Offered, out.Admitted, want)
				}
				if out.Takes > out.Offered/10 && (a != bucket.TokenBucket || times <= 1) {
					t.Errorf("%d takes decide %d requests", out.Takes, out.Offered)
				}
			})
		}
	}
}

// The page about leases shows what is simulated.
func TestTableIsSimulated(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/leases.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Fleets() {
		if f.Offered > soaktest.Long(100_000, math.MaxInt) {
			continue
		}
		t.Run(fmt.Sprint(f.Offered, f.Clients, f.Lease), func(t *testing.T) {
			t.Parallel()
			row, err := f.Row()
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(page), row+"\n") {
				t.Errorf("docs/leases.md does not show\n%s", row)
			}
		})
	}
}
