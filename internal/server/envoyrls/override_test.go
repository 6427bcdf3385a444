package envoyrls_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

const overriddenLimits = `
domain: api
descriptors:
  - {key: token_bucket, rate_limit: {name: n, algorithm: token_bucket, requests: 10, period: 1h, burst: 20}}
  - {key: gcra, rate_limit: {name: n, algorithm: gcra, requests: 10, period: 1h}}
  - {key: leaky_bucket, rate_limit: {name: n, algorithm: leaky_bucket, requests: 10, period: 1h}}
  - {key: fixed_window, rate_limit: {name: n, algorithm: fixed_window, requests: 10, period: 1h}}
  - {key: sliding_window, rate_limit: {name: n, algorithm: sliding_window, requests: 10, period: 1h, sub_windows: 6}}
  - {key: sliding_log, rate_limit: {name: n, algorithm: sliding_log, requests: 10, period: 1h}}
  - {key: postpaid, rate_limit: {algorithm: fixed_window, requests: 10, period: 1h, postpaid: true}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: unnamed, rate_limit: {unit: hour, requests_per_unit: 10}}
  - key: several
    rate_limits:
      - {name: s, unit: second, requests_per_unit: 3}
      - {name: d, unit: day, requests_per_unit: 10}
`

func wantOverride(d *servertest.Daemon, cost uint32, descriptor, limit, want string) {
	d.T.Helper()
	if got := d.Override(cost, descriptor, limit); got != want {
		d.T.Errorf("%s with %s:\n got %s\nwant %s", descriptor, limit, got, want)
	}
}

// TestOverrideCarriesTheState changes the rule's number and changes it back,
// with every algorithm.
func TestOverrideCarriesTheState(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, overriddenLimits)
	for _, a := range buckettest.Rates() {
		t.Run(a.String(), func(t *testing.T) {
			key := a.String() + "=x"
			remaining := func(r *rlsv3.RateLimitResponse) string {
				s := r.GetStatuses()[0]
				return fmt.Sprintf("%s %s %d of %d", r.GetOverallCode(), s.GetCurrentLimit().GetName(), s.GetLimitRemaining(), s.GetCurrentLimit().GetRequestsPerUnit())
			}
			full, left, ofMore := uint64(10), uint64(3), 94
			if a.IsBucket() {
				left, ofMore = 4, 99 // more than the rule's has a state of its own
			}
			if a == bucket.TokenBucket {
				full, left = 20, 14 // the burst of the bucket
			}
			for i, c := range []struct {
				limit string // "" for the rule's
				cost  uint32
				want  string
			}{
				{"", 4, fmt.Sprintf("OK n %d of 10", full-4)},
				{"6/HOUR", 1, "OK  1 of 6"},
				{"6/60xMINUTE", 2, "OVER_LIMIT  1 of 6"},
				{"3/HOUR", 1, "OVER_LIMIT  0 of 3"},
				{"100/HOUR", 1, fmt.Sprintf("OK  %d of 100", ofMore)},
				{"", 1, fmt.Sprintf("OK n %d of 10", left)},
				{"0/HOUR", 1, "OVER_LIMIT  0 of 0"},
				{"", 1, fmt.Sprintf("OK n %d of 10", left-1)},
			} {
				r := servertest.Request("api", c.cost, key)
				if c.limit != "" {
					r = servertest.Overriding(t, c.cost, key, c.limit)
				}
				if got := remaining(d.Send(r)); got != c.want {
					t.Errorf("step %d: got %s, want %s", i, got, c.want)
				}
			}
		})
	}
}

func TestOverrideHoldsInsteadOfTheRule(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, overriddenLimits)
	for _, c := range []struct{ name, descriptor, limit, want string }{
		{"no rule", "nothing=x", "5/MINUTE", "OK; OK  5/MINUTE remaining 4 reset 50s"},
		{"an unlimited rule", "free=x", "5/MINUTE", "OK; OK  5/MINUTE remaining 4 reset 50s"},
		{"no entries", "", "5/MINUTE", "OK; OK  5/MINUTE remaining 4 reset 50s"},
		{"deeper than any rule", "unnamed=x,and=y", "5/MINUTE", "OK; OK  5/MINUTE remaining 4 reset 50s"},
		{"a multiplier", "nothing=x", "5/90xSECOND", "OK; OK  5/90xSECOND remaining 4 reset 1m20s"}, // 00:00:10.25 of 90 s
		{"a multiplier of 1", "nothing=x", "6/1xMINUTE", "OK; OK  6/1xMINUTE remaining 4 reset 50s"},
		{"the same period in other words", "nothing=x", "7/60xSECOND", "OK; OK  7/60xSECOND remaining 4 reset 50s"},
		{"a month", "nothing=x", "5/MONTH", "OK; OK  5/MONTH remaining 4 reset 143h59m50s"},
		{"a multiplier of all that a unit can have", "nothing=x", "5/366xDAY", "OK; OK  5/366xDAY remaining 4 reset 1007h59m50s"},
		{"a year", "nothing=x", "5/YEAR", "OK; OK  5/YEAR remaining 4 reset 8423h59m50s"},
		{"another period than the rule's", "unnamed=x", "5/MINUTE", "OK; OK  5/MINUTE remaining 4 reset 50s"},
		{"of several, that of its period", "several=x", "5/DAY", "OK; OK  5/DAY remaining 4 reset 23h59m50s"},
		{"of several, none", "several=x", "5/HOUR", "OK; OK  5/HOUR remaining 4 reset 59m50s"},
		{"as the rule counts", "leaky_bucket=x", "4/90xSECOND", "OK; OK  4/90xSECOND remaining 3 reset 23s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantOverride(d, 1, c.descriptor, c.limit, c.want)
		})
	}
	wantOverride(d, 3, "several=x", "3/DAY", "OVER_LIMIT; OVER_LIMIT  3/DAY remaining 2 reset 23h59m50s; retry-after: 86390")
	// The rule's limits of other periods were not charged.
	servertest.WantShown(t, d.Ask("api", 3, "several=x"), "OK; OK s 3/SECOND remaining 0 reset 1s")
	// An unknown domain has no limits, not even the caller's.
	r := servertest.Overriding(t, 9, "nothing=x", "5/MINUTE")
	r.Domain = "unknown"
	for range 2 {
		servertest.WantShown(t, d.Send(r), "OK; OK remaining 0")
	}
}

func TestOverrideWithoutARuleCountsAsTheDomain(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, "domain: api\nalgorithm: token_bucket\n")
	wantOverride(d, 5, "user=x", "5/MINUTE", "OK; OK  5/MINUTE remaining 0 reset 1m0s")
	d.Clock.Move(12 * time.Second)
	wantOverride(d, 1, "user=x", "5/MINUTE", "OK; OK  5/MINUTE remaining 0 reset 1m0s")
}

// hitStore remembers the hits of requests.
type hitStore struct {
	bucket.Store
	mu   sync.Mutex
	hits []bucket.Hit
}

func (s *hitStore) Take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	s.mu.Lock()
	for _, h := range hits {
		h.Key = append([]byte(nil), h.Key...)
		s.hits = append(s.hits, h)
	}
	s.mu.Unlock()
	return s.Store.Take(ctx, hits, decisions)
}

func (s *hitStore) taken() []bucket.Hit {
	s.mu.Lock()
	defer s.mu.Unlock()
	hits := s.hits
	s.hits = nil
	return hits
}

func TestOverrideHasTheKeyOfItsRuleAndPeriod(t *testing.T) {
	t.Parallel()
	store := &hitStore{Store: servertest.Memory(t, servertest.NewClock())}
	d := servertest.Start(t, `
domain: api
descriptors:
  - key: user
    on_store_failure: deny
    rate_limits:
      - {name: "a#1", algorithm: sliding_window, requests: 3, period: 1s, sub_windows: 7, postpaid: true}
      - {name: b, algorithm: token_bucket, requests: 9, period: 1h, burst: 20}
      - {name: c, algorithm: gcra, requests: 9, period: 1h}
`, servertest.On(store))
	first := bucket.Spec{Name: "a#1", Algorithm: bucket.SlidingWindow, SubWindows: 7, Postpaid: bucket.PostpaidAlways, OnStoreFailure: bucket.FailDeny}
	second := bucket.Spec{Name: "b", Algorithm: bucket.TokenBucket, OnStoreFailure: bucket.FailDeny}
	with := func(s bucket.Spec, requests int64, period time.Duration) bucket.Spec {
		s.Requests, s.Period = requests, period
		if s.Algorithm.IsBucket() {
			s.Burst = requests
		}
		return s
	}
	for _, c := range []struct {
		descriptor, limit, key string
		want                   bucket.Spec
	}{
		{"user=x", "5/SECOND", "api|user=x#sliding_window:a%231", with(first, 5, time.Second)},
		{"user=x", "5/60xMINUTE", "api|user=x#token_bucket:b", with(second, 5, time.Hour)},
		{"user=x", "5/MINUTE", "api|user=x#sliding_window:a%231#60000", with(first, 5, time.Minute)},
		{"ip=#1", "5/HOUR", "api|ip=%231#fixed_window#3600000", with(bucket.Spec{Algorithm: bucket.FixedWindow, Postpaid: bucket.PostpaidAuto}, 5, time.Hour)},
	} {
		t.Run(c.descriptor+" "+c.limit, func(t *testing.T) {
			d.Override(1, c.descriptor, c.limit)
			hits := store.taken()
			if len(hits) != 1 || string(hits[0].Key) != c.key || hits[0].Limit.Spec != c.want {
				t.Errorf("asked %s of %+v; want %s of %+v", hits[0].Key, hits[0].Limit.Spec, c.key, c.want)
			}
		})
	}
}

// TestOverridesAreKept sends more limits than the daemon keeps. A limit in steady use
// stays the same; forgotten ones are made again.
func TestOverridesAreKept(t *testing.T) {
	t.Parallel()
	store := &hitStore{Store: &servertest.FakeStore{}}
	rpc := servertest.NewRPC(t, servertest.OneLimit, servertest.On(store))
	ask := func(requests uint32) *bucket.Limit {
		r := servertest.Overriding(t, 1, "user=x", "1/HOUR")
		r.Descriptors[0].Limit.RequestsPerUnit = requests
		if _, err := rpc.ShouldRateLimit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		return store.taken()[0].Limit
	}
	first := make(map[*bucket.Limit]bool)
	often := ask(1)
	for i := range uint32(10_000) {
		first[ask(100+i)] = true
		if i%1000 == 0 && ask(1) != often {
			t.Fatalf("after %d others a limit in use was made again", i)
		}
	}
	if len(first) != 10_000 {
		t.Errorf("%d limits for 10,000 numbers", len(first))
	}
	again := 0
	for i := range uint32(10_000) {
		if first[ask(100+i)] {
			again++
		}
	}
	if again == 10_000 {
		t.Error("all of 10,000 limits were kept, and more would be")
	}
	if last := ask(100 + 9_999); last != ask(100+9_999) || last.Requests != 100+9_999 {
		t.Errorf("the last limit is made each time, or is %+v", last.Spec)
	}
}

// TestOverridesOfManyCallersAreApart has many callers make and look up limits at once.
// The race detector watches.
func TestOverridesOfManyCallersAreApart(t *testing.T) {
	t.Parallel()
	rpc := servertest.NewRPC(t, servertest.OneLimit)
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for i := range 500 {
				own := uint32(1 + i + caller*100) // some are another caller's too
				r := servertest.Overriding(t, 0, "user=x", "1/MINUTE")
				r.Descriptors[0].Limit.RequestsPerUnit = own
				response, err := rpc.ShouldRateLimit(t.Context(), r)
				if err != nil {
					t.Error(err)
					return
				}
				if got := response.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit(); got != own {
					t.Errorf("asked with a limit of %d, decided with %d", own, got)
				}
			}
		})
	}
	callers.Wait()
}
