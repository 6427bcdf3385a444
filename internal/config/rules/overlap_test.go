package rules

import (
	"math/rand/v2"
	"testing"
)

// The test holds Overlap and Covers against all short values.
func TestOverlapAndCovers(t *testing.T) {
	var values []string
	for level := []string{""}; len(level[0]) <= 7; {
		values = append(values, level...)
		var longer []string
		for _, v := range level {
			longer = append(longer, v+"a", v+"b")
		}
		level = longer
	}
	r := rand.New(rand.NewPCG(1, 1))
	random := func() string {
		text := ""
		for range 1 + r.IntN(3) {
			text += string("ab*"[r.IntN(3)])
		}
		return text + "*" + string("ab*"[r.IntN(3)])
	}
	for range 500 {
		p, q := random(), random()
		overlap, covers := false, true
		a, b := newPattern(p), newPattern(q)
		for _, v := range values {
			overlap = overlap || a.match(v) && b.match(v)
			covers = covers && (a.match(v) || !b.match(v))
		}
		if got := Overlap(p, q); got != overlap {
			t.Errorf("Overlap(%q, %q) is %t", p, q, got)
		}
		if got := Covers(p, q); got != covers {
			t.Errorf("Covers(%q, %q) is %t", p, q, got)
		}
	}
}
