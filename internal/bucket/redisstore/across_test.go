package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/fallback"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/bucket/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// acrossRig is a store on a cluster, with a fallback. A test can run code before each
// of its commands: a request over several hash tags checks, takes and refunds by
// commands of their own, one for each tag. A second store has the same keys. Time
// stands still for both.
type acrossRig struct {
	t       testing.TB
	metrics *prometheus.Registry
	store   *redisstore.Store
	direct  *redisstore.Store
	redis   *redis.ClusterClient
	users   []string // each on a hash tag of its own
	keys    map[string]string

	mu     sync.Mutex
	calls  int // of the script, by store
	before map[int]func()
}

// newAcrossRig returns a rig whose fallback has this mode.
func newAcrossRig(t testing.TB, mode bucket.FailureMode, change ...func(*testOptions)) *acrossRig {
	t.Helper()
	r := &acrossRig{t: t, metrics: prometheus.NewRegistry(), keys: make(map[string]string)}
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC).UnixMicro()
	o := options(redisconn.Cluster, redistest.Cluster(t)...)
	o.Clock = func() int64 { return now }
	r.direct = open(t, o)
	r.redis = redis.NewClusterClient(&redis.ClusterOptions{Addrs: o.Addresses, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { r.redis.Close() })
	o.Clock = func() int64 {
		r.beforeCall()
		return now
	}
	o.Metrics = r.metrics
	o.Fallback = fallback.New(fallback.Options{
		Mode:     mode,
		Local:    memstore.New(memstore.Options{MaxKeys: 1e6}),
		Replicas: func() int { return 1 },
		Metrics:  r.metrics,
	})
	t.Cleanup(func() { o.Fallback.Close() })
	for _, f := range change {
		f(&o)
	}
	r.store = open(t, o)
	r.findUsers(o)
	return r
}

// findUsers finds four users of different hash tags.
func (r *acrossRig) findUsers(o testOptions) {
	r.t.Helper()
	l := newLimit(r.t, bucket.Spec{Name: "finding", Algorithm: bucket.FixedWindow, Requests: 1, Period: time.Minute})
	var seen []string
	for i := 0; len(r.users) < 4; i++ {
		user := fmt.Sprint("user-", i)
		take(r.t, r.direct, hit(l, user, 1))
		key := r.find(o, user)
		tag := key[strings.Index(key, "{"):strings.Index(key, "}")]
		if !slices.Contains(seen, tag) {
			seen = append(seen, tag)
			r.users = append(r.users, user)
		}
	}
}

// find returns the one key of a user.
func (r *acrossRig) find(o testOptions, user string) string {
	r.t.Helper()
	var found string
	for _, addr := range o.Addresses {
		for key := range redistest.Keys(r.t, redistest.Client(r.t, addr), o.Prefix) {
			if strings.Contains(key, "|user="+user+"#") {
				found = key
			}
		}
	}
	if found == "" {
		r.t.Fatalf("there is no key of %s", user)
	}
	// The keys of all limits of a user differ in what comes after this.
	r.keys[user] = found[:strings.Index(found, "#")+1]
	return found
}

func (r *acrossRig) beforeCall() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if f := r.before[r.calls]; f != nil {
		f()
	}
}

// comeBefore calls f before the n-th command from now on, and before those that are
// sent at the same time.
func (r *acrossRig) comeBefore(n int, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls, r.before = 0, map[int]func(){n: f}
}

// spoil makes the state of a hit unreadable, so that Redis decides no group
// with it, and mend removes it.
func (r *acrossRig) spoil(h bucket.Hit) {
	if err := r.redis.Set(context.Background(), r.key(h), "spoilt", time.Minute).Err(); err != nil {
		r.t.Error(err)
	}
}

func (r *acrossRig) mend(h bucket.Hit) {
	if err := r.redis.Del(context.Background(), r.key(h)).Err(); err != nil {
		r.t.Error(err)
	}
}

func (r *acrossRig) key(h bucket.Hit) string {
	text := string(h.Key)
	for user, head := range r.keys {
		if before, limit, _ := strings.Cut(text, "#"); strings.HasSuffix(before, "|user="+user) {
			return head + limit
		}
	}
	r.t.Fatalf("%q is the key of no user of the rig", text)
	return ""
}

// left returns what remains of a hit's limit in Redis.
func (r *acrossRig) left(h bucket.Hit) int64 {
	r.t.Helper()
	h.Cost = 0
	return take(r.t, r.direct, h)[0].Remaining
}

func (r *acrossRig) take(hits ...bucket.Hit) outcome {
	d := make([]bucket.Decision, len(hits))
	err := r.store.Take(context.Background(), hits, d)
	return outcome{d, err}
}

func (r *acrossRig) counted(labels ...string) float64 {
	r.t.Helper()
	return metric(r.t, r.metrics, "degraded_answers_total", labels...)
}

func dailyWindow(t testing.TB, n int64, change func(*bucket.Spec)) *bucket.Limit {
	t.Helper()
	s := bucket.Spec{Algorithm: bucket.FixedWindow, Requests: n, Period: 24 * time.Hour}
	if change != nil {
		change(&s)
	}
	return newLimit(t, s)
}

func postpaid(s *bucket.Spec) { s.Postpaid = bucket.PostpaidAlways }

func onFailure(m bucket.FailureMode) func(*bucket.Spec) {
	return func(s *bucket.Spec) { s.OnStoreFailure = m }
}

// Each request that Redis did not decide alone counts once, whichever of its commands
// failed, and however many did.
func TestDegradedCountsOnceARequest(t *testing.T) {
	t.Parallel()
	plain, paid := dailyWindow(t, 100, nil), dailyWindow(t, 100, postpaid)
	denied := dailyWindow(t, 0, nil)
	for _, c := range []struct {
		name string
		hits func(users []string) []bucket.Hit
		// spoilt are the hits that Redis cannot read before the call.
		spoilt []int
		call   int
		check  bool
	}{
		{"all of it", func(u []string) []bucket.Hit { return []bucket.Hit{hit(plain, u[0], 1), hit(plain, u[1], 1)} }, []int{0, 1}, 1, false},
		{"one of its checks", func(u []string) []bucket.Hit { return []bucket.Hit{hit(plain, u[0], 1), hit(plain, u[1], 1)} }, []int{1}, 1, false},
		{"one of its takes", func(u []string) []bucket.Hit { return []bucket.Hit{hit(plain, u[0], 1), hit(plain, u[1], 1)} }, []int{1}, 3, false},
		{"its refund", func(u []string) []bucket.Hit { return []bucket.Hit{hit(plain, u[0], 1), hit(plain, u[1], -1)} }, []int{1}, 1, false},
		{"its refund, after the takes", func(u []string) []bucket.Hit { return []bucket.Hit{hit(plain, u[0], 1), hit(plain, u[1], -1)} }, []int{1}, 4, false},
		{"several refunds", func(u []string) []bucket.Hit {
			return []bucket.Hit{hit(plain, u[0], 1), hit(plain, u[1], -1), hit(plain, u[2], -1)}
		}, []int{1, 2}, 1, false},
		{"a take and a refund", func(u []string) []bucket.Hit {
			return []bucket.Hit{hit(plain, u[0], 1), hit(plain, u[1], 1), hit(plain, u[2], -1)}
		}, []int{0, 2}, 1, false},
		{"a take and a refund of one tag", func(u []string) []bucket.Hit {
			return []bucket.Hit{hit(plain, u[0], 1), hit(plain, u[1], 1), hit(paid, u[1], -1)}
		}, []int{1}, 1, false},
		{"only refunds", func(u []string) []bucket.Hit { return []bucket.Hit{hit(plain, u[0], -1), hit(plain, u[1], -1)} }, []int{1}, 1, false},
		{"a denied request", func(u []string) []bucket.Hit { return []bucket.Hit{hit(denied, u[0], 1), hit(plain, u[1], 1)} }, []int{1}, 1, false},
		{"what a denied request charges", func(u []string) []bucket.Hit { return []bucket.Hit{hit(denied, u[0], 1), hit(paid, u[1], 1)} }, []int{1}, 3, false},
		{"a denied request and what it charges", func(u []string) []bucket.Hit {
			return []bucket.Hit{hit(denied, u[0], 1), hit(paid, u[1], 1), hit(paid, u[2], 1)}
		}, []int{1, 2}, 1, false},
		{"a check over several tags", func(u []string) []bucket.Hit { return []bucket.Hit{hit(plain, u[0], 1), hit(plain, u[1], 1)} }, []int{0, 1}, 1, true},
		{"a check of one tag", func(u []string) []bucket.Hit { return []bucket.Hit{hit(plain, u[0], 1)} }, []int{0}, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newAcrossRig(t, bucket.FailAllow)
			hits := c.hits(r.users)
			const asked = 20
			for range asked {
				for _, i := range c.spoilt {
					r.mend(hits[i])
				}
				r.comeBefore(c.call, func() {
					for _, i := range c.spoilt {
						r.spoil(hits[i])
					}
				})
				d := make([]bucket.Decision, len(hits))
				ask := r.store.Take
				if c.check {
					ask = r.store.Check
				}
				if err := ask(context.Background(), hits, d); err != nil {
					t.Fatal(err)
				}
				if !slices.ContainsFunc(d, func(d bucket.Decision) bool { return d.Degraded }) {
					t.Fatalf("the answer is not marked as degraded: %+v", d)
				}
			}
			if n := r.counted("unreadable"); n != asked || r.counted() != n {
				t.Errorf("%v degraded answers of %d are counted", n, asked)
			}
		})
	}
}

// A caller that left before its answer got none, so its request is not counted.
func TestCallersThatLeftAreNotCounted(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailAllow)
	l := dailyWindow(t, 100, nil)
	hits := []bucket.Hit{hit(l, r.users[0], 1), hit(l, r.users[1], 1)}
	for range 20 {
		ctx, leave := context.WithCancel(context.Background())
		r.spoil(hits[0])
		r.comeBefore(3, leave)
		if err := r.store.Take(ctx, hits, make([]bucket.Decision, 2)); err == nil {
			t.Error("a caller that left was answered")
		}
		r.mend(hits[0])
		if o := r.take(hits...); o.err != nil || o.decisions[0].Degraded || o.decisions[1].Degraded {
			t.Errorf("the next request got %+v, %v", o.decisions, o.err)
		}
	}
	if n := r.counted(); n != 0 {
		t.Errorf("%v degraded answers are counted, want none", n)
	}
}

// Redis is not asked again for a tag that it did not decide before, and is for
// the others.
func TestRefundGoesWhereItsTakeWent(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailAllow)
	plain, other := dailyWindow(t, 100, nil), dailyWindow(t, 100, func(s *bucket.Spec) { s.Name = "other" })
	spoilt := hit(plain, r.users[0], 1)
	refunds := []bucket.Hit{hit(other, r.users[0], -5), hit(other, r.users[1], -5), hit(other, r.users[2], -5)}
	for _, h := range refunds {
		h.Cost = 10
		take(t, r.direct, h)
	}
	// Its calls are the check of each, and the take of two.
	r.comeBefore(4, func() { r.spoil(spoilt) })
	o := r.take(append([]bucket.Hit{spoilt, hit(plain, r.users[1], 1)}, refunds...)...)
	if o.err != nil {
		t.Fatal(o.err)
	}
	for i, isDegraded := range []bool{true, false, true, false, false} {
		if o.decisions[i].Degraded != isDegraded {
			t.Errorf("hit %d, where Redis fails for the first: %+v", i, o.decisions[i])
		}
	}
	for i, want := range []int64{90, 95, 95} {
		if n := r.left(refunds[i]); n != want {
			t.Errorf("after refund %d %d of 100 remain, want %d", i, n, want)
		}
	}
}

// A request over several tags asks each once to check it, and once more to take,
// peek or refund, unless it is denied.
func TestEachTagIsAskedOnceAStep(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError)
	plain, none := dailyWindow(t, 100, nil), dailyWindow(t, 0, nil)
	for _, c := range []struct {
		name  string
		hits  []bucket.Hit
		calls int
	}{
		{"takes", []bucket.Hit{hit(plain, r.users[0], 1), hit(plain, r.users[1], 1)}, 4},
		{"a take and a peek", []bucket.Hit{hit(plain, r.users[0], 1), hit(plain, r.users[1], 0)}, 4},
		{"a take and a refund", []bucket.Hit{hit(plain, r.users[0], 1), hit(plain, r.users[1], -1)}, 4},
		{"a denied take", []bucket.Hit{hit(plain, r.users[0], 1), hit(none, r.users[1], 1)}, 2},
	} {
		r.comeBefore(0, nil)
		if o := r.take(c.hits...); o.err != nil {
			t.Fatal(o.err)
		}
		r.mu.Lock()
		if r.calls != c.calls {
			t.Errorf("%s: %d calls, want %d", c.name, r.calls, c.calls)
		}
		r.mu.Unlock()
	}
}

// A request of one tag is one command, also where one over several tags was before it.
func TestRequestOfOneTagIsOneCommand(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError)
	one, two := dailyWindow(t, 1000, nil), dailyWindow(t, 1000, func(s *bucket.Spec) { s.Name = "two" })
	for range 10 {
		for _, user := range r.users {
			r.take(hit(one, r.users[0], 1), hit(one, r.users[1], 1))
			for _, hits := range [][]bucket.Hit{{hit(one, user, 1)}, {hit(one, user, 1), hit(two, user, 1)}} {
				r.comeBefore(0, nil)
				if o := r.take(hits...); o.err != nil {
					t.Fatal(o.err)
				}
				r.mu.Lock()
				if r.calls != 1 {
					t.Errorf("%d calls for %d hits of one tag, want 1", r.calls, len(hits))
				}
				r.mu.Unlock()
			}
		}
	}
}

// If several modes decide parts of one request, each is counted once.
func TestDegradedCountsEachModeOnce(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailAllow)
	allow, local := dailyWindow(t, 100, nil), dailyWindow(t, 100, onFailure(bucket.FailLocal))
	hits := []bucket.Hit{hit(allow, r.users[0], 1), hit(local, r.users[1], -1), hit(allow, r.users[2], -1), hit(local, r.users[3], 1)}
	for _, h := range hits {
		r.spoil(h)
	}
	if o := r.take(hits...); o.err != nil {
		t.Fatal(o.err)
	}
	if a, l := r.counted("allow"), r.counted("local"); a != 1 || l != 1 {
		t.Errorf("counted %v for allow and %v for local, want 1 each", a, l)
	}
}

// When a part of a request fails for good, at any step, what the other parts took is
// given back; postpaid charges stay.
func TestFailedRequestIsFree(t *testing.T) {
	t.Parallel()
	plain, paid := dailyWindow(t, 100, nil), dailyWindow(t, 100, postpaid)
	for _, c := range []struct {
		name string
		cost int64 // of the hit that fails
		call int   // before which its state becomes unreadable
	}{
		{"check", 1, 1},
		{"take", 1, 4},
		{"refund", -1, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newAcrossRig(t, bucket.FailError)
			taken, charged, failing := hit(plain, r.users[0], 2), hit(paid, r.users[1], 3), hit(plain, r.users[2], c.cost)
			r.comeBefore(c.call, func() { r.spoil(failing) })
			if o := r.take(taken, charged, failing); o.err == nil {
				t.Fatalf("the request got %+v", o.decisions)
			}
			if n := r.left(taken); n != 100 {
				t.Errorf("%d of 100 remain of a limit that a failed request took from", n)
			}
			want := int64(97)
			if c.name == "check" {
				want = 100
			}
			if n := r.left(charged); n != want {
				t.Errorf("%d of 100 remain of a postpaid limit, want %d", n, want)
			}
			if n := r.counted("error"); n != 1 || r.counted() != 1 {
				t.Errorf("%v answers of mode error are counted, want 1", n)
			}
		})
	}
}

// What the fallback granted in a request that failed is given back to it too.
func TestFailedRequestIsFreeInTheFallback(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError)
	taken := hit(newLimit(t, bucket.Spec{
		Algorithm: bucket.SlidingWindow, Requests: 3, Period: 24 * time.Hour, OnStoreFailure: bucket.FailLocal,
	}), r.users[0], 2)
	failing := hit(dailyWindow(t, 100, nil), r.users[1], -1)
	r.spoil(taken)
	// Its calls are the check of each, and the refund: the take is the fallback's.
	r.comeBefore(3, func() { r.spoil(failing) })
	if o := r.take(taken, failing); o.err == nil {
		t.Fatalf("the request got %+v", o.decisions)
	}
	if o := r.take(taken); !o.degraded() || !o.decisions[0].Allowed() || o.decisions[0].Remaining != 1 {
		t.Errorf("after a failed request a take of 2 from a share of 3 gets %+v, %v", o.decisions, o.err)
	}
}

// A request that loses a race is denied. What it took is given back; postpaid charges
// stay, and their decisions show them.
func TestLostRaceIsGivenBack(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError)
	narrow, plain, paid := dailyWindow(t, 1, nil), dailyWindow(t, 100, nil), dailyWindow(t, 100, postpaid)
	lost, taken, charged := hit(narrow, r.users[0], 1), hit(plain, r.users[1], 2), hit(paid, r.users[2], 3)
	r.comeBefore(4, func() { take(t, r.direct, lost) })
	o := r.take(lost, taken, charged)
	if o.err != nil || o.decisions[0].Allowed() || !o.decisions[1].Allowed() || !o.decisions[2].Allowed() {
		t.Fatalf("the request got %+v, %v", o.decisions, o.err)
	}
	if n := metric(t, r.metrics, "redis_races_total"); n != 1 {
		t.Errorf("%v races are counted, want 1", n)
	}
	if told, left := o.decisions[1].Remaining, r.left(taken); told != 100 || left != 100 {
		t.Errorf("of a limit that was given back %d of 100 are told to remain, %d do", told, left)
	}
	if told, left := o.decisions[2].Remaining, r.left(charged); told != 97 || left != 97 {
		t.Errorf("of a postpaid limit %d are told to remain, %d do; want 97 of 100", told, left)
	}
}

// A part that lost a race took nothing of its other limits either: nothing is
// given back to these, and what they are told is how they are by then.
func TestLostRaceBesideAnother(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError)
	narrow, plain := dailyWindow(t, 1, nil), dailyWindow(t, 100, func(s *bucket.Spec) { s.Name = "plain" })
	lost, beside, taken := hit(narrow, r.users[0], 1), hit(plain, r.users[0], 2), hit(plain, r.users[1], 2)
	r.comeBefore(3, func() { take(t, r.direct, lost, hit(plain, r.users[0], 5)) })
	o := r.take(lost, beside, taken)
	if o.err != nil || o.decisions[0].Allowed() || !o.decisions[1].Allowed() || !o.decisions[2].Allowed() {
		t.Fatalf("the request got %+v, %v", o.decisions, o.err)
	}
	if told, left := o.decisions[1].Remaining, r.left(beside); told != 95 || left != 95 {
		t.Errorf("of a limit from which others took 5 of 100, %d are told to remain, %d do", told, left)
	}
	if told, left := o.decisions[2].Remaining, r.left(taken); told != 100 || left != 100 {
		t.Errorf("of a limit that was given back %d of 100 are told to remain, %d do", told, left)
	}
}

// A peek denies a request whose limit others have used up since the check.
func TestLostRaceOfAPeek(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError)
	narrow, taken := dailyWindow(t, 1, nil), hit(dailyWindow(t, 100, nil), r.users[1], 2)
	lost := hit(narrow, r.users[0], 0)
	r.comeBefore(3, func() { take(t, r.direct, hit(narrow, r.users[0], 1)) })
	if o := r.take(lost, taken); o.err != nil || o.decisions[0].Allowed() || !o.decisions[1].Allowed() {
		t.Fatalf("the request got %+v, %v", o.decisions, o.err)
	}
	if n := r.left(taken); n != 100 {
		t.Errorf("%d of 100 remain of a limit that was given back", n)
	}
}

// A request whose quotas were all used up since the check is denied, and costs nothing.
func TestLostRaceOfQuotas(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError)
	narrow := dailyWindow(t, 1, nil)
	first, second := hit(narrow, r.users[0], 1), hit(narrow, r.users[1], 1)
	taken := hit(dailyWindow(t, 100, nil), r.users[2], 2)
	hits := []bucket.Hit{first, second, taken}
	hits[0].Role, hits[1].Role = bucket.Quota(1), bucket.Quota(2)
	r.comeBefore(4, func() {
		take(t, r.direct, first)
		take(t, r.direct, second)
	})
	if o := r.take(hits...); o.err != nil || bucket.GroupAllowed(hits, o.decisions) {
		t.Fatalf("the request got %+v, %v", o.decisions, o.err)
	}
	if n := r.left(taken); n != 100 {
		t.Errorf("%d of 100 remain of a limit that was given back", n)
	}
	if n := metric(t, r.metrics, "redis_races_total"); n != 1 {
		t.Errorf("%v races are counted, want 1", n)
	}
}

// What a request that lost a race had taken denied others, which is forgotten
// once it is given back.
func TestLostRaceEndsDenials(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError, knowDenials, eachAlone)
	narrow := dailyWindow(t, 1, nil)
	lost, taken := hit(narrow, r.users[0], 1), hit(narrow, r.users[1], 1)
	// The store asks for the time to know denials, for two checks, two takes and
	// the give-back.
	r.comeBefore(4, func() { take(t, r.direct, lost) })
	r.before[6] = func() {
		r.mu.Unlock() // for the calls of others
		defer r.mu.Lock()
		for range 2 {
			if o := r.take(taken); o.err != nil || o.decisions[0].Allowed() {
				t.Errorf("before the give-back another gets %+v, %v", o.decisions, o.err)
			}
		}
	}
	if o := r.take(lost, taken); o.err != nil || o.decisions[0].Allowed() {
		t.Fatalf("the request got %+v, %v", o.decisions, o.err)
	}
	if n := metric(t, r.metrics, "redis_known_denials_total"); n != 1 {
		t.Errorf("%v were answered from memory, want 1", n)
	}
	if o := r.take(taken); o.err != nil || !o.decisions[0].Allowed() {
		t.Errorf("after the give-back another gets %+v, %v", o.decisions, o.err)
	}
}

// A caller with a deadline is answered before it, also where the checks get no
// answer: these wait for half of its time.
func TestDeadlineOfAChecksCaller(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailAllow)
	l := dailyWindow(t, 100, nil)
	answered := make(chan struct{})
	r.comeBefore(1, func() { <-answered })
	defer close(answered)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	d := make([]bucket.Decision, 2)
	if err := r.store.Take(ctx, []bucket.Hit{hit(l, r.users[0], 1), hit(l, r.users[1], 1)}, d); err != nil {
		t.Fatalf("a caller got %v", err)
	}
	if !d[0].Degraded || !d[1].Degraded {
		t.Errorf("without an answer of Redis: %+v", d)
	}
}

// A caller that left uses its memory again while its command is on its way, which is
// still about its own keys.
func TestCommandOfACallerThatLeftHasItsOwnKeys(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError)
	l, other := dailyWindow(t, 100, nil), dailyWindow(t, 100, func(s *bucket.Spec) { s.Name = "other" })
	left, refund := hit(l, r.users[0], 1), hit(l, r.users[1], -1)
	others := []bucket.Hit{hit(other, r.users[1], 1), hit(other, r.users[0], 1)}
	for range 10 {
		r.take(others...) // so that there is memory to use again
	}
	// Its calls are two checks, and the take of one.
	held := newHeldCommand(t)
	r.comeBefore(3, held.wait)
	ctx, leave := context.WithCancel(context.Background())
	gone := make(chan error)
	go func() { gone <- r.store.Take(ctx, []bucket.Hit{left, refund}, make([]bucket.Decision, 2)) }()
	<-held.reached
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that left got the error %v", err)
	}
	const asked = 50
	answers := make(chan outcome, asked)
	for range asked {
		go func() { answers <- r.take(others...) }()
	}
	asynctest.Eventually(t, "the others wait", func() bool { return metric(t, r.metrics, "redis_queue_length") >= asked })
	held.release()
	for range asked {
		if o := <-answers; o.err != nil || !bucket.Allowed(o.decisions) {
			t.Errorf("another caller got %+v, %v", o.decisions, o.err)
		}
	}
	if n := r.left(left); n != 99 {
		t.Errorf("%d of 100 remain after a take that was sent, want 99", n)
	}
}

// A quota decides at the check only, and fails with its store all the same.
func TestQuotaFailsWithItsStore(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailAllow)
	quota := func(n int, h bucket.Hit) bucket.Hit {
		h.Role = bucket.Quota(n)
		return h
	}
	taken := quota(1, hit(dailyWindow(t, 100, nil), r.users[0], 1))
	failing := quota(2, hit(dailyWindow(t, 100, onFailure(bucket.FailError)), r.users[1], 1))
	r.comeBefore(3, func() { r.spoil(failing) })
	if o := r.take(taken, failing); o.err == nil {
		t.Errorf("the request got %+v", o.decisions)
	}
	if n := r.left(taken); n != 100 {
		t.Errorf("%d of 100 remain of a quota that a failed request took from", n)
	}
	if n := r.counted("error"); n != 1 || r.counted() != 1 {
		t.Errorf("%v answers of mode error are counted of %v, want 1 of 1", n, r.counted())
	}
}

// A quota that the fallback denies at the take leaves the request to the others.
func TestQuotaIsDeniedWithoutItsStore(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailAllow)
	taken := hit(dailyWindow(t, 100, nil), r.users[0], 1)
	denied := hit(dailyWindow(t, 100, onFailure(bucket.FailDeny)), r.users[1], 1)
	taken.Role, denied.Role = bucket.Quota(1), bucket.Quota(2)
	r.comeBefore(3, func() { r.spoil(denied) })
	o := r.take(taken, denied)
	if o.err != nil || !o.decisions[0].Allowed() || o.decisions[1].Allowed() || !o.decisions[1].Degraded {
		t.Fatalf("the request got %+v, %v", o.decisions, o.err)
	}
	if n := r.left(taken); n != 99 {
		t.Errorf("%d of 100 remain of a quota that allowed the request, want 99", n)
	}
}

// The charges of quotas are given back, also if a postpaid limit denied one of them.
func TestQuotasAreGivenBack(t *testing.T) {
	t.Parallel()
	quota := func(n int, h bucket.Hit) bucket.Hit {
		h.Role = bucket.Quota(n)
		return h
	}
	local := func(name string, requests int64, postpaid bucket.Postpaid) *bucket.Limit {
		return newLimit(t, bucket.Spec{
			Name: name, Algorithm: bucket.SlidingWindow, Requests: requests, Period: 24 * time.Hour,
			Postpaid: postpaid, OnStoreFailure: bucket.FailLocal,
		})
	}
	for _, spoilt := range []bool{false, true} {
		t.Run(fmt.Sprintf("by the fallback %t", spoilt), func(t *testing.T) {
			t.Parallel()
			r := newAcrossRig(t, bucket.FailError)
			first := quota(1, hit(local("first", 100, bucket.PostpaidNever), r.users[0], 1))
			plain := quota(2, hit(local("plain", 100, bucket.PostpaidNever), r.users[1], 1))
			paid := quota(2, hit(local("paid", 5, bucket.PostpaidAlways), r.users[1], 1))
			if spoilt {
				r.spoil(plain)
			}
			empty := paid
			empty.Role, empty.Cost = bucket.Enforced, 7
			aside := plain // so that both ways the fallback decides both
			aside.Role, aside.Cost = bucket.Aside, 0
			if o := r.take(empty, aside); o.err != nil || o.degraded() != spoilt {
				t.Fatalf("the first charge got %+v, %v", o.decisions, o.err)
			}
			hits := []bucket.Hit{first, plain, paid}
			o := r.take(hits...)
			if o.err != nil || !bucket.GroupAllowed(hits, o.decisions) || o.decisions[2].Allowed() || o.decisions[1].Degraded != spoilt {
				t.Fatalf("the request got %+v, %v", o.decisions, o.err)
			}
			if err := r.store.GiveBack(context.Background(), hits, o.decisions); err != nil {
				t.Fatal(err)
			}
			plain.Role, plain.Cost = bucket.Enforced, 0
			if got := r.take(plain); got.err != nil || got.decisions[0].Remaining != 100 || got.decisions[0].Degraded != spoilt {
				t.Errorf("after the give-back of a quota of 100 a peek gets %+v, %v", got.decisions, got.err)
			}
		})
	}
}
