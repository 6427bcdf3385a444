package xds

import (
	"fmt"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	xdsv3 "github.com/ratelimitd/ratelimitd/proto/ratelimit/xds/v3"
)

// Three thousand domains with ten rules each, as Envoy Gateway makes them. It is
// loaded over another like it, so that rules go on.
func BenchmarkLoad(b *testing.B) {
	data := [2][]byte{}
	for i := range data {
		var domains []*xdsv3.RateLimitConfig
		for k := range 3000 {
			d := &xdsv3.RateLimitConfig{Name: fmt.Sprintf("default/eg/http-%d", k)}
			d.Domain = d.Name
			for r := range 10 {
				route := fmt.Sprintf("httproute/default/http-ratelimit/rule/%d/match/0/www_example_com", r)
				d.Descriptors = append(d.Descriptors, &xdsv3.RateLimitDescriptor{Key: route, Value: route, Descriptors: []*xdsv3.RateLimitDescriptor{
					{Key: "rule-0-match-0", Value: "rule-0-match-0", RateLimit: &xdsv3.RateLimitPolicy{RequestsPerUnit: uint32(i), Unit: xdsv3.RateLimitUnit_RATE_LIMIT_UNIT_HOUR}},
				}})
			}
			domains = append(domains, d)
		}
		data[i] = responseOf(b, domains...)
	}
	live := limitsfile.Options{Lenient: true}.NewFedLive("xds", nil)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s, err := readSnapshot(data[i%2])
		if err == nil {
			err = live.Feed(s.digest, s.list())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
