package rules_test

import (
	"fmt"
	"math/rand/v2"
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
}
