package replaycmd

import (
	"math"
	"testing"
)

func TestSharesArePercent(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{"99.9": 0.999, "99.9%": 0.999, "100": 1, "0.5%": 0.005, "1%": 0.01} {
		var got float64
		if err := shareValue(&got).Set(text); err != nil || math.Abs(got-want) > 1e-12 {
			t.Errorf("%q is %v, %v; not %v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "%", "0", "0.999", "1", "100.1", "99.9%%", "nan", "-1%"} {
		if err := shareValue(new(float64)).Set(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
