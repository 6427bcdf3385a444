// Plots draws docs/algorithms-light.svg and docs/algorithms-dark.svg: what each algorithm
// admits of the same burst of requests. The store in memory decides, on a clock of the
// program's own, so that every run draws the same. It also draws docs/load-*.svg, latency
// against load, from what make bench measured.
//
//	go run ./integration/plots docs
package main

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/integration/picture"
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
	all := make(map[string]string)
	for _, t := range themes {
		all["algorithms-"+t.Name+".svg"] = draw(t, panels)
		all["load-"+t.Name+".svg"] = drawLoads(t)
	}
	return all, nil
}
