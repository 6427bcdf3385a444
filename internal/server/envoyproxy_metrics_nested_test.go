package server_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// flaggedLevel is one level of a chain of descriptors that ends in a limit.
type flaggedLevel struct {
	value                  string // of the file
	shares, counts, detail bool
}

func (l flaggedLevel) text(key string) string {
	text := fmt.Sprintf("{key: %s, value: %q", key, l.value)
	for _, f := range []struct {
		name string
		set  bool
	}{{"share_threshold", l.shares}, {"value_to_metric", l.counts}, {"detailed_metric", l.detail}} {
		if f.set {
			text += ", " + f.name + ": true"
		}
	}
	return text
}

// The labels of each limit are those of envoyproxy/ratelimit, whatever flags its levels
// have: the value of the file, that of the request at a level with value_to_metric, and
// those of the request at all levels where the limit has detailed_metric.
func TestFlagsOfAllLevelsNameHitsAsEnvoyproxyDoes(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	one := func() bool { return random.IntN(2) == 0 }
	for n := range 100 {
		limits, requests := "domain: api\ndescriptors:\n", [][]string{}
		want := make(map[string]int)
		for chain := range 4 {
			levels := make([]flaggedLevel, 1+random.IntN(4))
			text := ""
			for i := range levels {
				l := &levels[i]
				l.value = []string{"", "x", "v*", "*"}[random.IntN(4)]
				l.shares = strings.Contains(l.value, "*") && one()
				l.counts = one()
				l.detail = i == len(levels)-1 && random.IntN(4) == 0
				text += l.text(fmt.Sprintf("c%d-%d", chain, i))
				if i < len(levels)-1 {
					text += ", descriptors: ["
				}
			}
			limits += "- " + text + ", rate_limit: {unit: year, requests_per_unit: 1000}" + strings.Repeat("}]", len(levels)-1) + "}\n"
			for range 5 {
				var entries, labels []string
				for i, l := range levels {
					key, value := fmt.Sprintf("c%d-%d", chain, i), fmt.Sprintf("v%d", random.IntN(3))
					if l.value == "x" {
						value = "x"
					}
					shown := l.value
					if l.counts || levels[len(levels)-1].detail {
						shown = value
					}
					entries = append(entries, key+"="+value)
					labels = append(labels, strings.TrimSuffix(key+"_"+shown, "_"))
				}
				requests = append(requests, []string{strings.Join(entries, ",")})
				want[strings.TrimSuffix("api|"+labels[0]+"|"+strings.Join(labels[1:], "."), "|")]++
			}
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := portless(t, limits, likeEnvoyproxy)
			for _, descriptors := range requests {
				if _, err := s.RPC().ShouldRateLimit(t.Context(), servertest.Request("api", 1, descriptors...)); err != nil {
					t.Fatal(err)
				}
			}
			w := httptest.NewRecorder()
			s.Admin().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			got := make(map[string]int)
			for labels, text := range hitsIn(t, servertest.Samples(t, w.Body.String())) {
				var total int
				if _, err := fmt.Sscanf(text, "total %d", &total); err != nil {
					t.Fatal(err)
				}
				got[labels] = total
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s\ngot  %v\nwant %v", limits, got, want)
			}
		})
	}
}
