package bucket_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
)

// BenchmarkStep measures a decision and its charge.
func BenchmarkStep(b *testing.B) {
	for _, a := range buckettest.Rates() {
		b.Run(a.String(), func(b *testing.B) {
			l := buckettest.NewLimit(b, bucket.Spec{Algorithm: a, Requests: 1000, Period: time.Second})
			clock := int64(1_800_000_000_000_000)
			var s bucket.State
			allowed := 0
			b.ReportAllocs()
			for b.Loop() {
				clock += 1001 // a little slower than the limit
				d := l.Decide(&s, clock, bucket.Demand{Cost: 1})
				if d.Allowed() {
					l.Charge(&s, clock, bucket.Demand{Cost: 1}, d)
					allowed++
				}
			}
			if allowed == 0 {
				b.Fatal("nothing was allowed")
			}
		})
	}
}

// BenchmarkStepDenied measures a decision that denies.
func BenchmarkStepDenied(b *testing.B) {
	for _, a := range buckettest.Rates() {
		b.Run(a.String(), func(b *testing.B) {
			l := buckettest.NewLimit(b, bucket.Spec{Algorithm: a, Requests: 1000, Period: bucket.MaxPeriod})
			clock := int64(1_800_000_000_000_000)
			var s bucket.State
			l.Charge(&s, clock, bucket.Demand{Cost: 1000}, l.Decide(&s, clock, bucket.Demand{Cost: 1000}))
			b.ReportAllocs()
			for b.Loop() {
				if l.Decide(&s, clock, bucket.Demand{Cost: 1}).Allowed() {
					b.Fatal("allowed")
				}
			}
		})
	}
}

func BenchmarkAppendKey(b *testing.B) {
	l := buckettest.NewLimit(b, bucket.Spec{Name: "per-user", Algorithm: bucket.TokenBucket, Requests: 1, Period: time.Second})
	entries := []bucket.Entry{{Key: "tenant", Value: "acme"}, {Key: "user", Value: "alice@example.com"}, {Key: "path", Value: "/v1/orders"}}
	var subject, key []byte
	b.ReportAllocs()
	for b.Loop() {
		subject = bucket.AppendSubject(subject[:0], "api", entries)
		key = l.AppendKey(key[:0], subject)
	}
}
