package takeapi_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

const leasedLimits = `
domain: api
descriptors:
  - {key: user, rate_limit: {name: n, requests: 100, period: 1s, lease: 100ms}}
`

// However it is asked for, a lease is granted in the same way.
func TestLeases(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, leasedLimits)
	stream := d.Stream()
	for way, take := range map[string]func(r *ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse{
		"alone": d.SendTake,
		"many": func(r *ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse {
			return ask(t, d, nil, []*ratelimitv1.NumberedTake{{Take: r}})[0].GetResponse()
		},
		"stream": func(r *ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse {
			return ask(t, d, stream, []*ratelimitv1.NumberedTake{{Take: r}})[0].GetResponse()
		},
		"JSON": func(r *ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse {
			body, err := protojson.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			response := new(ratelimitv1.TakeResponse)
			p := d.Fetch("POST", "http", "/v1/take", strings.NewReader(string(body)))
			if err := protojson.Unmarshal([]byte(p.Body), response); err != nil {
				t.Fatalf("%s: %v", p.Body, err)
			}
			return response
		},
	} {
		for _, step := range []struct {
			cost, lease uint64
			want        *ratelimitv1.TakeResponse // but for the limits
			remaining   uint64
		}{
			{1, 0, &ratelimitv1.TakeResponse{Allowed: true, GoodFor: durationpb.New(100 * time.Millisecond)}, 89},
			{1, 80, &ratelimitv1.TakeResponse{Allowed: true, Granted: 80, GoodFor: durationpb.New(100 * time.Millisecond)}, 9},
			{1, 1 << 63, &ratelimitv1.TakeResponse{Allowed: true, GoodFor: durationpb.New(100 * time.Millisecond)}, 8},
			{10, 80, &ratelimitv1.TakeResponse{DeniedBy: new(uint32), RetryAfter: durationpb.New(20 * time.Millisecond), GoodFor: durationpb.New(20 * time.Millisecond)}, 8},
			{2, 80, &ratelimitv1.TakeResponse{Allowed: true, Granted: 8, GoodFor: durationpb.New(100 * time.Millisecond)}, 0},
			{1, 80, &ratelimitv1.TakeResponse{DeniedBy: new(uint32), RetryAfter: durationpb.New(10 * time.Millisecond), GoodFor: durationpb.New(10 * time.Millisecond)}, 0},
		} {
			r := servertest.Taking("user=" + way)
			r.Descriptors[0].Cost, r.Lease = &step.cost, step.lease
			got := take(r)
			remaining := got.GetLimits()[0].GetRemaining()
			if got.Limits = nil; remaining != step.remaining || !proto.Equal(got, step.want) {
				t.Errorf("%s, %d of %d: %d remain, %v, want %d and %v", way, step.cost, step.lease, remaining, got, step.remaining, step.want)
			}
		}
	}
}

// What is granted counts as taken, and what is left of it as given back.
func TestLeasesAreCountedAtTheGrant(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, leasedLimits)
	r := servertest.Taking("user=a")
	r.Lease = 60
	granted := d.SendTake(r)
	r.Lease = 9 << 60
	d.SendTake(r) // no one has so many
	if err := d.GiveBack(servertest.Taking("user=a:50"), granted); err != nil {
		t.Fatal(err)
	}
	d.WantMetrics(map[string]float64{
		`ratelimitd_limit_decisions_total{domain="api",limit="n",result="allowed",rule="user"}`:     2,
		`ratelimitd_limit_cost_total{domain="api",limit="n",result="allowed",rule="user"}`:          61,
		`ratelimitd_limit_returned_cost_total{domain="api",how="given_back",limit="n",rule="user"}`: 50,
	})
}
