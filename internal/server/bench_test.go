package server_test

import (
	"context"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

const benchLimits = `
domain: api
descriptors:
  - key: user
    descriptors:
      - {key: route, rate_limit: {name: r, requests: 4000000000, period: 1h}}
      - {key: closed, rate_limit: {name: c, requests: 0, period: 1h}}
`

// BenchmarkShouldRateLimit is the handler's cost without network: a request of
// one descriptor with two entries, decided by the memory store.
func BenchmarkShouldRateLimit(b *testing.B) {
	for _, c := range []struct {
		name, descriptor string
		want             rlsv3.RateLimitResponse_Code
	}{
		{"allowed", "user=alice,route=/orders", rlsv3.RateLimitResponse_OK},
		{"denied", "user=alice,closed=/orders", rlsv3.RateLimitResponse_OVER_LIMIT},
		{"unmatched", "user=alice,other=/orders", rlsv3.RateLimitResponse_OK},
	} {
		b.Run(c.name, func(b *testing.B) {
			rpc := portless(b, benchLimits).RPC()
			r := request("api", 1, c.descriptor)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				response, err := rpc.ShouldRateLimit(ctx, r)
				if err != nil || response.GetOverallCode() != c.want {
					b.Fatal(response, err)
				}
			}
		})
	}
}
