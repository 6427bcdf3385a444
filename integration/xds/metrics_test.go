package xds_test

import (
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/xds"
)

// The other metrics are looked at in integration.
func TestDocumentedMetricsAreThoseShown(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	told := make(map[string]string)
	for _, m := range regexp.MustCompile("(?m)^\\| `(ratelimitd_xds_\\w+)` \\| (\\w+) \\|").FindAllStringSubmatch(string(page), -1) {
		told[m[1]] = m[2]
	}
	m := manage(t, nil)
	f := follow(t, xds.Options{Address: m.address})
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := make(map[string]string)
	for _, family := range families {
		shown[family.GetName()] = strings.ToLower(family.GetType().String())
	}
	if !maps.Equal(told, shown) {
		t.Errorf("docs/metrics.md tells of\n%v\na client shows\n%v", told, shown)
	}
}
