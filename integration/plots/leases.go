package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/integration/leases"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// What the picture of leases is about.
const (
	leaseLimit   = 2000 // a second
	leaseClients = 8
	leaseLength  = 100 * time.Millisecond
	// leaseSteps points divide each multiple of the limit up to leaseMax.
	leaseSteps, leaseMax = 5, 3
)

// leased are the algorithms that differ with leases.
var leased = []bucket.Algorithm{bucket.TokenBucket, bucket.FixedWindow, bucket.SlidingWindow}

// outcome is what became of an offered load, as parts of the limit, and how many calls
// daemons had for 1,000 decisions.
type outcome struct{ offered, admitted, calls float64 }

// leaseCurve simulates loads up to leaseMax times the limit.
func leaseCurve(a bucket.Algorithm, lease time.Duration) (curve []outcome, err error) {
	for n := 1; n <= leaseMax*leaseSteps; n++ {
		l := leases.Load{
			Limit:   bucket.Spec{Algorithm: a, Requests: leaseLimit, Period: time.Second, Lease: lease},
			Clients: leaseClients, Offered: leaseLimit * float64(n) / leaseSteps,
			// Long enough for a bucket to empty, and then whole windows, also of 1.1 s.
			Warm: 6 * time.Second, Length: 11 * time.Second,
		}
		out, err := leases.Run(l, 1)
		if err != nil {
			return nil, err
		}
		whole := leaseLimit * l.Length.Seconds()
		curve = append(curve, outcome{float64(out.Offered) / whole, float64(out.Admitted) / whole, 1000 * float64(out.Calls()) / float64(out.Offered)})
	}
	return curve, nil
}

// drawLeases returns a picture of the curves without a lease and with one, by algorithm.
func drawLeases(t theme, curves map[bucket.Algorithm][2][]outcome) string {
	const (
		height     = 444
		admittedAt = 70  // the upper panels end 120 pixels below, and a limit has 80
		callsAt    = 244 // and of the lower ones, of 48 for a power of ten
		plot       = 144
	)
	c := new(canvas)
	c.begin(t, height, "What is admitted, and how many calls daemons get for 1,000 decisions, when up to three times the limit is offered: without a lease and with one of 100 ms.")
	c.Add(`  <path class="line" d="M%d 26h16"/>`, left)
	c.Add(`  <text x="%d" y="30">lease: 100ms</text>`, left+22)
	c.Add(`  <path class="asked" d="M%d 26h16"/>`, left+124)
	c.Add(`  <text x="%d" y="30">without</text>`, left+146)
	c.Add(`  <text class="end" x="%d" y="30">simulated: %d clients share a limit of %d a second</text>`, left+2*columnStep+plotWidth, leaseClients, leaseLimit)
	for i, a := range leased {
		x := left + i*columnStep
		first := func(label string) string { // only the first column has numbers
			if i > 0 {
				return ""
			}
			return label
		}
		c.Add("\n  <!-- %s -->", a)
		c.Add(`  <text class="name" x="%d" y="66">%s</text>`, x, a)
		c.Add(`  <text x="%d" y="88">admitted, in times the limit</text>`, x)
		c.Add(`  <text x="%d" y="%d">calls for 1,000 decisions</text>`, x, callsAt-12)
		for n := 0; n <= 3; n++ {
			upper, lower := admittedAt+120-n*80, callsAt+plot-n*plot/3
			if n < 2 {
				c.grid(x, upper, plotWidth, first(fmt.Sprint(n)))
			}
			c.grid(x, lower, plotWidth, first(fmt.Sprint(math.Pow10(n))))
			c.Add(`  <text class="middle" x="%d" y="%d">%d</text>`, x+n*plotWidth/leaseMax, callsAt+plot+16, n)
		}
		c.Add(`  <text class="middle" x="%d" y="%d">offered, in times the limit</text>`, x+plotWidth/2, callsAt+plot+36)
		for k, class := range []string{"asked", "line"} {
			c.Add(`  <path class="%s" d="%s"/>`, class, outcomes(curves[a][k], x, func(o outcome) float64 { return admittedAt + 120 - 80*o.admitted }))
			c.Add(`  <path class="%s" d="%s"/>`, class, outcomes(curves[a][k], x, func(o outcome) float64 { return callsAt + plot - plot/3*math.Log10(o.calls) }))
		}
	}
	c.Add(`</svg>`)
	return c.String()
}

// outcomes returns the path of a curve.
func outcomes(curve []outcome, x int, y func(outcome) float64) string {
	var b strings.Builder
	letter := "M"
	for _, o := range curve {
		fmt.Fprintf(&b, "%s%d %s", letter, x+int(math.Round(o.offered*plotWidth/leaseMax)), tenths(int(math.Round(10*y(o)))))
		letter = "L"
	}
	return b.String()
}
