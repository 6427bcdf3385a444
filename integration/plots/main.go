// Plots draws docs/algorithms-light.svg and docs/algorithms-dark.svg: what each algorithm
// admits of the same burst of requests. The store in memory decides, on a clock of the
// program's own, so that every run draws the same. It also draws docs/load-*.svg, latency
// against load, from what make bench measured, and docs/leases-*.svg, what is admitted with
// a lease, by package leases.
//
//	go run ./integration/plots docs
package main

import (
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/integration/picture"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

func main() { picture.Main("plots", pictures) }

// pictures returns the text of each picture by its file name.
func pictures() (map[string]string, error) {
	var panels []panel
	for _, p := range plotted {
		c, err := admit(p.spec)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.title, err)
		}
		p.curves = c
		panels = append(panels, p)
	}
	withLeases := make(map[bucket.Algorithm][2][]outcome)
	for _, a := range leased {
		var both [2][]outcome
		for i, lease := range []time.Duration{0, leaseLength} {
			var err error
			if both[i], err = leaseCurve(a, lease); err != nil {
				return nil, fmt.Errorf("%s: %w", a, err)
			}
		}
		withLeases[a] = both
	}
	all := make(map[string]string)
	for _, t := range themes {
		all["algorithms-"+t.Name+".svg"] = draw(t, panels)
		all["load-"+t.Name+".svg"] = drawLoads(t)
		all["leases-"+t.Name+".svg"] = drawLeases(t, withLeases)
	}
	return all, nil
}
