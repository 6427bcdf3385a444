package envoyrls_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

const unitLimits = `
domain: api
descriptors:
  - {key: second, rate_limit: {name: s, unit: second, requests_per_unit: 5}}
  - {key: minute, rate_limit: {name: m, unit: minute, requests_per_unit: 5}}
  - {key: hour, rate_limit: {name: h, unit: hour, requests_per_unit: 5}}
  - {key: day, rate_limit: {name: d, unit: day, requests_per_unit: 5}}
  - {key: week, rate_limit: {name: w, unit: week, requests_per_unit: 5}}
  - {key: month, rate_limit: {name: mo, unit: month, requests_per_unit: 5}}
  - {key: year, rate_limit: {name: y, unit: year, requests_per_unit: 5}}
  - {key: sixty, rate_limit: {requests: 7, period: 60s}}
  - {key: ninety, rate_limit: {requests: 7, period: 90s, burst: 20}}
  - {key: fortnight, rate_limit: {requests: 7, period: 14d, algorithm: fixed_window}}
  - {key: half, rate_limit: {requests: 7, period: 500ms, algorithm: fixed_window}}
  - {key: uneven, rate_limit: {requests: 7, period: 1500ms, algorithm: fixed_window}}
  - {key: closed, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: most, rate_limit: {unit: second, requests_per_unit: 4294967295}}
  - {key: more, rate_limit: {algorithm: fixed_window, requests: 4503599627370496, period: 1s}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: bare}
`

func TestStatusShowsEachUnit(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, unitLimits)
	for _, c := range []struct{ descriptor, want string }{
		{"second=x", "OK; OK s 5/SECOND remaining 4 reset 1s"}, // 0.75 s, rounded up
		{"minute=x", "OK; OK m 5/MINUTE remaining 4 reset 50s"},
		{"hour=x", "OK; OK h 5/HOUR remaining 4 reset 59m50s"},
		{"day=x", "OK; OK d 5/DAY remaining 4 reset 23h59m50s"},
		{"week=x", "OK; OK w 5/WEEK remaining 4 reset 167h59m50s"},
		// Windows of 30 and 365 days since the epoch end in 6 and 351 days.
		{"month=x", "OK; OK mo 5/MONTH remaining 4 reset 143h59m50s"},
		{"year=x", "OK; OK y 5/YEAR remaining 4 reset 8423h59m50s"},
		{"sixty=x", "OK; OK  7/MINUTE remaining 6 reset 9s"},       // 60/7 s
		{"ninety=x", "OK; OK  7/90xSECOND remaining 19 reset 13s"}, // 90/7 s
		{"fortnight=x", "OK; OK  7/2xWEEK remaining 6 reset 335h59m50s"},
		{"half=x", "OK; OK  7/UNKNOWN remaining 6 reset 1s"},
		{"uneven=x", "OK; OK  7/UNKNOWN remaining 6 reset 1s"},
		{"closed=x", "OVER_LIMIT; OVER_LIMIT  0/HOUR remaining 0 reset 59m50s"},
		{"most=x", "OK; OK  4294967295/SECOND remaining 4294967294 reset 1s"},
	} {
		t.Run(c.descriptor, func(t *testing.T) {
			servertest.WantShown(t, d.Ask("api", 0, c.descriptor), c.want)
		})
	}
}

func TestTightestLimitOfARuleSpeaks(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, `
domain: api
descriptors:
  - key: user
    rate_limits:
      - {name: daily, unit: day, requests_per_unit: 50}
      - {name: short, unit: minute, requests_per_unit: 2}
      - {name: long, unit: hour, requests_per_unit: 3}
`)
	// While all allow, the limit with the fewest remaining speaks.
	servertest.WantShown(t, d.Ask("api", 1, "user=x"), "OK; OK short 2/MINUTE remaining 1 reset 50s")
	// Cost 2: short has 1 left and long 2.
	servertest.WantShown(t, d.Ask("api", 2, "user=x"), "OVER_LIMIT; OVER_LIMIT short 2/MINUTE remaining 1 reset 50s; retry-after: 50")
	d.Ask("api", 1, "user=x")
	d.Clock.Move(time.Minute)
	// Long has 1 left and short 2. Only long denies a cost of 2.
	servertest.WantShown(t, d.Ask("api", 2, "user=x"), "OVER_LIMIT; OVER_LIMIT long 3/HOUR remaining 1 reset 58m50s; retry-after: 3530")
	servertest.WantShown(t, d.Ask("api", 1, "user=x"), "OK; OK long 3/HOUR remaining 0 reset 58m50s")
	// Both deny a cost of 2: the limit with the longest retry time speaks.
	servertest.WantShown(t, d.Ask("api", 2, "user=x"), "OVER_LIMIT; OVER_LIMIT long 3/HOUR remaining 0 reset 58m50s; retry-after: 3530")
	// Short can never give 3, so the answer has no retry time.
	servertest.WantShown(t, d.Ask("api", 3, "user=x"), "OVER_LIMIT; OVER_LIMIT short 2/MINUTE remaining 1 reset 50s")
}

// The answer has 32 bits: what is more is the largest number, and the true one decides.
func TestNumbersBeyond32BitsAreTheLargest(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, unitLimits)
	ask := func(hits uint64) *rlsv3.RateLimitResponse {
		r := servertest.Request("api", 1, "more=x")
		r.Descriptors[0].HitsAddend = wrapperspb.UInt64(hits)
		return d.Send(r)
	}
	const full = "  4294967295/SECOND remaining 4294967295 reset 1s"
	servertest.WantShown(t, ask(1), "OK; OK"+full)
	servertest.WantShown(t, ask(1<<52-1<<32-1), "OK; OK"+full) // 2^32 remain
	servertest.WantShown(t, ask(1<<32+1), "OVER_LIMIT; OVER_LIMIT"+full+"; retry-after: 1")
	servertest.WantShown(t, ask(1), "OK; OK"+full)
	servertest.WantShown(t, ask(1), "OK; OK  4294967295/SECOND remaining 4294967294 reset 1s")
	servertest.WantShown(t, ask(1<<52+1), "OVER_LIMIT; OVER_LIMIT  4294967295/SECOND remaining 4294967294 reset 1s")
}

// placeStore notes the places of keys.
type placeStore struct {
	bucket.Store
	mu     sync.Mutex
	places []string
}

func (s *placeStore) Take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	s.mu.Lock()
	for _, h := range hits {
		s.places = append(s.places, string(h.Place))
	}
	s.mu.Unlock()
	return s.Store.Take(ctx, hits, decisions)
}

func (s *placeStore) taken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Join(s.places, " ")
	s.places = nil
	return text
}

func TestHashTagPlacesKeys(t *testing.T) {
	t.Parallel()
	store := &placeStore{Store: servertest.Memory(t, servertest.NewClock())}
	d := servertest.Start(t, `
domain: api
hash_tag: tenant
descriptors:
  - key: tenant
    rate_limits:
      - {name: a, unit: hour, requests_per_unit: 5}
      - {name: b, unit: day, requests_per_unit: 5}
    descriptors:
      - {key: route, rate_limit: {name: r, unit: hour, requests_per_unit: 5}}
  - {key: ip, rate_limit: {name: i, unit: hour, requests_per_unit: 5}}
`, servertest.On(store))
	for _, c := range []struct{ name, descriptors, places string }{
		{"a tenant's limits are together", "tenant=t{1} tenant=t{1},route=/", "t{1} t{1} t{1}"},
		{"routes of a tenant are together, and are charged apart", "tenant=v,route=/ tenant=v,route=/x", "v v"},
		{"an empty value is a value", "tenant= tenant=,route=/", "  "},
		{"without the entry, by the descriptor", "ip=1.2.3.4 tenant=u", "api|ip=1.2.3.4 u u"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := d.Ask("api", 1, strings.Split(c.descriptors, " ")...)
			if got := store.taken(); got != c.places {
				t.Errorf("places %q, want %q", got, c.places)
			}
			for _, s := range r.GetStatuses() {
				if s.GetLimitRemaining() != 4 {
					t.Errorf("each is a counter of its own: %s", servertest.Show(r))
				}
			}
		})
	}
}

// TestExactlyTheLimitIsAdmitted asks from many callers over gRPC and HTTP.
func TestExactlyTheLimitIsAdmitted(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, `
domain: api
descriptors:
  - {key: user, rate_limit: {name: u, unit: hour, requests_per_unit: 300}}
  - key: route
    rate_limits:
      - {name: r, requests: 137, period: 1h, algorithm: sliding_window}
      - {name: s, requests: 200, period: 1h}
`)
	var admitted atomic.Int64
	var callers sync.WaitGroup
	for i := range 32 {
		callers.Go(func() {
			for range 20 {
				allowed, err := isAllowed(d, i%4 == 0, servertest.Request("api", 1, "user=x", "route=/"))
				if err != nil {
					t.Error(err)
				}
				if allowed {
					admitted.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if got := admitted.Load(); got != 137 {
		t.Errorf("%d were admitted, want 137", got)
	}
	// Denials by the route cost the user nothing.
	servertest.WantShown(t, d.Ask("api", 163, "user=x"), "OK; OK u 300/HOUR remaining 0 reset 59m50s")
}

// isAllowed asks over HTTP or gRPC.
func isAllowed(d *servertest.Daemon, overHTTP bool, r *rlsv3.RateLimitRequest) (bool, error) {
	if overHTTP {
		p, err := d.TryFetch("POST", "http", "/json", strings.NewReader(servertest.ToJSON(d.T, r)))
		return p.Code == 200, err
	}
	response, err := d.Try(r)
	return response.GetOverallCode() == rlsv3.RateLimitResponse_OK, err
}
