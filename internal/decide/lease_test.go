package decide_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decide/decidetest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/top"
)

// Of a bucket of 10 with a tenth of it held back, 9 can be taken.
const leasedLimits = `
domain: d
descriptors:
  - {key: user, rate_limit: {name: rate, requests: 10, period: 1s, lease: 100ms}}
  - {key: other, rate_limit: {requests: 100, period: 10s, lease: 20ms}}
  - {key: window, rate_limit: {requests: 10, period: 1s, algorithm: fixed_window, lease: 50ms}}
  - {key: day, rate_limit: {requests: 10, calendar: day, lease: 1s}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: plain, rate_limit: {requests: 10, period: 1s}}
  - {key: closed, rate_limit: {requests: 0, period: 1s, lease: 30ms}}
  - {key: shadow, shadow_mode: true, rate_limit: {requests: 10, period: 1s, lease: 100ms}}
  - {key: trial, rate_limit: {requests: 10, period: 1s, lease: 100ms, enforce: 0%}}
  - {key: quota, quota_mode: true, rate_limit: {requests: 10, period: 1s, lease: 100ms}}
  - {key: share, quota_mode: true, rate_limit: {requests: 10, period: 1s, lease: 100ms}}
  - key: several
    rate_limits: [{name: a, requests: 10, period: 1s, lease: 90ms}, {name: b, requests: 10, period: 2s, lease: 200ms}]
  - key: half
    rate_limits: [{name: a, requests: 10, period: 1s, lease: 90ms}, {name: b, requests: 10, period: 2s}]
`

// wantLease checks what a decided call granted, and for how long it is good.
func wantLease(t *testing.T, c *decide.Call, denied bool, granted int64, goodFor time.Duration) {
	t.Helper()
	if c.Denied != denied || c.Granted != granted || c.GoodFor() != goodFor {
		t.Errorf("denied %t, granted %d, good for %s; want %t, %d, %s", c.Denied, c.Granted, c.GoodFor(), denied, granted, goodFor)
	}
}

// ways are how a call is decided: alone, or with one without a lease.
func ways(r *rig) map[string]func(*decide.Call) error {
	if r.Many == nil {
		r.Many = manyTaker{r.Store}
	}
	return map[string]func(*decide.Call) error{
		"alone": func(c *decide.Call) error { return r.Decide(context.Background(), c) },
		"together": func(c *decide.Call) error {
			errs := make([]error, 3)
			r.DecideTogether(context.Background(), []*decide.Call{r.Call(decidetest.Asking("plain=a", 1)), c, r.Call(decidetest.Asking("plain=b", 1))}, errs)
			if errs[1] == decide.ErrAlone {
				return r.Decide(context.Background(), c)
			}
			return errs[1]
		},
	}
}

func TestWhatCanBeLeased(t *testing.T) {
	t.Parallel()
	r := newRig(t, leasedLimits)
	r.assign("user=assigned", assign.Terms{Numbers: []assign.Numbers{{Limit: "rate", Requests: 20, Period: 4 * time.Second}}})
	r.assign("user=slow", assign.Terms{Numbers: []assign.Numbers{{Limit: "rate", Requests: 1, Period: time.Second}}})
	r.assign("user=blocked", assign.Terms{Blocked: true})
	r.Clock.Add(970_000) // 30 ms before a window ends
	type call struct {
		about   []decide.Descriptor
		id      string
		lease   uint64
		denied  bool
		granted int64
		goodFor time.Duration
	}
	about := func(texts ...string) (all []decide.Descriptor) {
		for _, text := range texts {
			all = append(all, decidetest.Asking(text, 2))
		}
		return all
	}
	for name, c := range map[string]call{
		"a lease":               {about: about("user=W"), lease: 5, granted: 5, goodFor: 100 * time.Millisecond},
		"none asked":            {about: about("user=W"), goodFor: 100 * time.Millisecond},
		"not more than needed":  {about: about("user=W"), lease: 2, goodFor: 100 * time.Millisecond},
		"all":                   {about: about("user=W"), lease: 9, granted: 9, goodFor: 100 * time.Millisecond},
		"too much":              {about: about("user=W"), lease: 10, granted: 9, goodFor: 100 * time.Millisecond},
		"absurdly much":         {about: about("user=W"), lease: 1 << 63, goodFor: 100 * time.Millisecond},
		"the shortest counts":   {about: about("user=W", "other=W"), lease: 5, granted: 5, goodFor: 20 * time.Millisecond},
		"of two one has less":   {about: about("user=W", "other=W"), lease: 10, granted: 9, goodFor: 20 * time.Millisecond},
		"the same twice":        {about: about("other=W", "other=W"), lease: 5, granted: 5, goodFor: 20 * time.Millisecond},
		"beside no limit":       {about: about("user=W", "free=W", "nobody=W"), lease: 5, granted: 5, goodFor: 100 * time.Millisecond},
		"several limits":        {about: about("several=W"), lease: 5, granted: 5, goodFor: 90 * time.Millisecond},
		"until a window's end":  {about: about("window=W"), lease: 5, granted: 5, goodFor: 30 * time.Millisecond},
		"a calendar":            {about: about("day=W"), lease: 5, granted: 5, goodFor: time.Second},
		"assigned numbers":      {about: about("user=assigned"), lease: 5, granted: 5, goodFor: 100 * time.Millisecond},
		"assigned for no lease": {about: []decide.Descriptor{decidetest.Asking("user=slow", 1)}, lease: 5},
		"a block":               {about: about("user=blocked"), lease: 5, denied: true},
		"always denied":         {about: about("closed=W"), lease: 5, denied: true, goodFor: 30 * time.Millisecond},
		"no limit":              {about: about("free=W", "nobody=W"), lease: 5},
		"no lease":              {about: about("plain=W"), lease: 5},
		"one without a lease":   {about: about("user=W", "plain=W"), lease: 5},
		"a limit without":       {about: about("half=W"), lease: 5},
		"shadow":                {about: about("shadow=W"), lease: 5},
		"not enforced":          {about: about("trial=W"), lease: 5},
		"quotas":                {about: about("quota=W", "share=W"), lease: 5},
		"an ID":                 {about: about("user=W"), id: "x", lease: 5},
		"own numbers":           {about: []decide.Descriptor{decidetest.Bringing("user=W", 100, time.Second)}, lease: 5},
		"a peek":                {about: []decide.Descriptor{decidetest.Asking("user=W", 0)}, lease: 5},
		"several costs":         {about: append(about("user=W"), decidetest.Asking("other=W", 1)), lease: 5},
	} {
		for way, decided := range ways(r) {
			t.Run(name+" "+way, func(t *testing.T) {
				for i := range c.about {
					for j := range c.about[i].Entries {
						if e := &c.about[i].Entries[j]; strings.HasPrefix(e.Value, "W") {
							e.Value = "W " + t.Name() // one for each
						}
					}
				}
				asked := r.Call(c.about...)
				asked.ID, asked.Lease = c.id, c.lease
				if err := decided(asked); err != nil {
					t.Fatal(err)
				}
				wantLease(t, asked, c.denied, c.granted, c.goodFor)
				r.Clock.Add(int64(10 * time.Second / time.Microsecond)) // assigned subjects are asked twice
			})
		}
	}
}

// A lease is a take: what it takes is gone, and what is left of it comes back. A denial is good
// until its retry.
func TestALeaseIsTaken(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) { leaseIsTaken(t, newRig(t, leasedLimits)) })
	t.Run("redis", func(t *testing.T) { leaseIsTaken(t, newRig(t, leasedLimits, onRedis(t))) })
}

func leaseIsTaken(t *testing.T, r *rig) {
	for way, decided := range ways(r) {
		t.Run(way, func(t *testing.T) {
			take := func(cost, lease uint64) *decide.Call {
				t.Helper()
				c := r.Call(decidetest.Asking("user="+way, cost))
				c.Lease = lease
				if err := decided(c); err != nil {
					t.Fatal(err)
				}
				return c
			}
			grant := take(1, 8)
			wantLease(t, grant, false, 8, 100*time.Millisecond)
			if d := grant.Outcomes[0].Decisions[0]; d.Remaining != 1 || grant.Descriptors[0].Cost() != 8 {
				t.Errorf("%+v of %d", d, grant.Descriptors[0].Cost())
			}
			plain := take(1, 8)
			wantLease(t, plain, false, 0, 100*time.Millisecond)
			if plain.Descriptors[0].Cost() != 1 {
				t.Errorf("a lease that was denied costs %d", plain.Descriptors[0].Cost())
			}
			r.Clock.Add(60_000)
			wantLease(t, take(1, 8), true, 0, 40*time.Millisecond)
			wantLease(t, take(10, 0), true, 0, 100*time.Millisecond) // never
			back := r.Call(decidetest.Asking("user="+way, 7))
			if err := r.GiveBack(t.Context(), back, []decide.Taken{grant.Taken(&grant.Outcomes[0], 0)}, true); err != nil {
				t.Fatal(err)
			}
			if c := take(0, 0); c.Outcomes[0].Decisions[0].Remaining == 0 {
				t.Error("nothing came back")
			}
		})
	}
}

func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }

// onRedis has a decider keep its states in Redis, under a prefix of its own.
func onRedis(t testing.TB) func(*decide.Options) {
	return func(o *decide.Options) {
		conn, err := redisconn.New(redisconn.Options{Mode: redisconn.Single, Addresses: []string{redistest.Single(t)}, Prefix: fmt.Sprintf("test-%x", rand.Uint64()), Timeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		s, err := redisstore.New(conn, redisstore.Options{
			HashTags: 32, Batch: redisstore.BatchBounds{Size: 1000, InFlight: 1, Queue: 10_000}, Clock: o.Now, DenialMemory: time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = s.Close(), conn.Close() })
		o.Store, o.Many = s, s
	}
}

// Who used the most is who was granted the most.
func TestLeasesCountInTops(t *testing.T) {
	t.Parallel()
	r := newRig(t, leasedLimits, func(o *decide.Options) { o.Tops = decide.Tops{Used: true, Budget: top.NewBudget(1 << 20)} })
	c := r.Call(decidetest.Asking("user=a", 1))
	c.Lease = 8
	if err := r.Decide(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if a := r.Top(top.Question{Kind: top.Used}); a.Total != 8 {
		t.Errorf("%d were used", a.Total)
	}
}

// fakeStore answers takes as a test says.
type fakeStore struct {
	bucket.Store
	take func(hits []bucket.Hit, decisions []bucket.Decision)
}

func (s *fakeStore) Take(_ context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	s.take(hits, decisions)
	return nil
}

// What the store did not decide is no lease. If that denies, it is not asked again, since it
// may have taken.
func TestNoLeaseWithoutTheStore(t *testing.T) {
	t.Parallel()
	for _, retry := range []time.Duration{0, time.Millisecond} {
		asked := 0
		r := newRig(t, leasedLimits, func(o *decide.Options) {
			o.Store = &fakeStore{take: func(_ []bucket.Hit, decisions []bucket.Decision) {
				asked++
				decisions[0] = bucket.Decision{RetryAfter: retry, Degraded: true, At: 5}
			}}
		})
		c := r.Call(decidetest.Asking("user=a", 1))
		c.Lease = 5
		if err := r.Decide(t.Context(), c); err != nil || asked != 1 || c.GoodFor() != 0 {
			t.Errorf("asked %d times, %v, good for %s", asked, err, c.GoodFor())
		}
	}
}
