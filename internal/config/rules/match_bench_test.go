package rules_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
)

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		d := limitstest.Domain(b, limitstest.ManyRules(n))
		var subjects [][]bucket.Entry
		r := rand.New(rand.NewPCG(1, 2))
		for range 1024 {
			subjects = append(subjects, limitstest.Entries(fmt.Sprintf("tenant=t%d,user=u%d,route=/api/v1", r.IntN(100), r.IntN(n/2))))
		}
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if d.Match(subjects[i%len(subjects)]) == nil {
					b.Fatal("no match")
				}
			}
		})
	}
	benchmarkMixedPatterns(b)
}

// benchmarkMixedPatterns matches against 1,000 patterns under one key, with
// stars that lead, trail and stand inside.
func benchmarkMixedPatterns(b *testing.B) {
	r := rand.New(rand.NewPCG(3, 4))
	var s strings.Builder
	s.WriteString("domain: d\ndescriptors:\n")
	var values []string
	for i := range 1000 {
		word := fmt.Sprintf("%x", r.Uint64()>>(4*r.IntN(12)))
		pattern := [...]string{word + "*", "*" + word, word + "*.json", "/v1/" + word + "/*", "*/" + word + "/*", "/" + word[:1] + "*/" + word + "*.html"}[i%6]
		fmt.Fprintf(&s, "- {key: path, value: '%s', rate_limit: {requests: 1, period: 1s}}\n", pattern)
		values = append(values, strings.ReplaceAll(pattern, "*", "some/thing"), "/none/of/them/"+word)
	}
	d := limitstest.Domain(b, s.String())
	var subjects [][]bucket.Entry
	for _, v := range values {
		subjects = append(subjects, []bucket.Entry{{Key: "path", Value: v}})
	}
	b.Run("mixed-patterns=1000", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			d.Match(subjects[i%len(subjects)])
		}
	})
}
