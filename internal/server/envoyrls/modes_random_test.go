package envoyrls_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

const mixedLimits = `
domain: api
descriptors:
  - {key: enforced, rate_limits: [{name: h, unit: hour, requests_per_unit: 9}, {name: d, unit: day, requests_per_unit: 9}]}
  - {key: shadow, shadow_mode: true, rate_limits: [{name: h, unit: hour, requests_per_unit: 9}, {name: d, unit: day, requests_per_unit: 9}]}
  - {key: quota, quota_mode: true, rate_limits: [{name: h, unit: hour, requests_per_unit: 9}, {name: d, unit: day, requests_per_unit: 9}]}
  - {key: small, quota_mode: true, rate_limit: {name: h, unit: hour, requests_per_unit: 9}}
`

// TestRandomCallsFollowTheRolesOfTheirHits asks a store that denies some keys.
// The calls' descriptors may share keys; the result must follow from each of
// them.
func TestRandomCallsFollowTheRolesOfTheirHits(t *testing.T) {
	t.Parallel()
	for _, allAreQuotas := range []bool{false, true} {
		t.Run(fmt.Sprint("all are quotas: ", allAreQuotas), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, 2))
			denied := make(map[string]bool) // by key and period
			rpc := servertest.NewRPC(t, mixedLimits, func(o *server.Options) {
				o.Modes.Quota = allAreQuotas
				o.Store = &servertest.FakeStore{OnTake: func(_ context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
					for i, h := range hits {
						if denied[fmt.Sprint(string(h.Place), h.Limit.Period)] {
							decisions[i].RetryAfter = time.Second
						}
					}
					return nil
				}}
			})
			for range 3000 {
				clear(denied)
				request := &rlsv3.RateLimitRequest{Domain: "api"}
				enforced, quotas, passing := true, 0, false
				for range 1 + r.IntN(5) {
					key := []string{"enforced", "shadow", "quota", "small"}[r.IntN(4)]
					entries := []*ratelimitv3.RateLimitDescriptor_Entry{servertest.Entry(key, "x")}
					descriptor := &ratelimitv3.RateLimitDescriptor{Entries: entries}
					if r.IntN(3) == 0 {
						descriptor.Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{
							RequestsPerUnit: 9,
							Unit:            []typev3.RateLimitUnit{typev3.RateLimitUnit_HOUR, typev3.RateLimitUnit_DAY}[r.IntN(2)],
						}
					}
					request.Descriptors = append(request.Descriptors, descriptor)
					for _, period := range []time.Duration{time.Hour, 24 * time.Hour} {
						place := fmt.Sprint("api|", key, "=x", period)
						if _, drawn := denied[place]; !drawn {
							denied[place] = r.IntN(2) == 0
						}
					}
				}
				for _, descriptor := range request.GetDescriptors() {
					key := descriptor.GetEntries()[0].GetKey()
					hour, day := denied["api|"+key+"=x1h0m0s"], denied["api|"+key+"=x24h0m0s"]
					over := hour || day && key != "small"
					own := descriptor.GetLimit() != nil
					if own && descriptor.GetLimit().GetUnit() == typev3.RateLimitUnit_HOUR {
						over = hour
					} else if own {
						over = day
					}
					switch {
					case key == "shadow" && !own:
					case allAreQuotas || (key == "quota" || key == "small") && !own:
						quotas++
						passing = passing || !over
					default:
						enforced = enforced && !over
					}
				}
				want := enforced && (quotas == 0 || passing)
				response, err := rpc.ShouldRateLimit(t.Context(), request)
				if err != nil {
					t.Fatal(err)
				}
				if got := response.GetOverallCode() == rlsv3.RateLimitResponse_OK; got != want {
					t.Fatalf("%v with denied %v: allowed is %v, want %v", request, denied, got, want)
				}
			}
		})
	}
}
