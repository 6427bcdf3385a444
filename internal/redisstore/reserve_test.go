package redisstore_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

var reserved = bucket.Reservation{ID: "one", Lasts: time.Hour}

// reserve takes with an ID through the proxy.
func (r *rig) reserve(hits ...bucket.Hit) outcome {
	d := make([]bucket.Decision, len(hits))
	err := r.store.Reserve(context.Background(), reserved, hits, d)
	return outcome{d, err}
}

// settle settles the ID of reserve to the costs of the hits.
func (r *rig) settle(hits ...bucket.Hit) ([]bucket.Settled, error) {
	settled := make([]bucket.Settled, len(hits))
	return settled, r.store.Settle(context.Background(), reserved.ID, hits, settled)
}

// failLocal makes the fallback of a rig decide by shares of its own.
func failLocal(o *testOptions) {
	o.Fallback = fallback.New(fallback.Options{
		Mode: bucket.FailLocal, Local: memstore.New(memstore.Options{MaxKeys: 1000}), Replicas: func() int { return 1 },
	})
}

// A take whose reply is lost has charged all the same, and the fallback lets it through:
// its settlement makes it right, in Redis and in the fallback.
func TestSettlementOfATakeWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, failLocal)
	x := hit(daily(t, 100), "a", 50)
	cut := r.proxy.CutAfter("user=a")
	if o := r.reserve(x); !o.degraded() || !o.decisions[0].Allowed() || o.decisions[0].Remaining != 50 {
		t.Fatalf("the take gets %+v, %v", o.decisions, o.err)
	}
	<-cut
	if n := r.taken(x); n != 50 {
		t.Fatalf("%d were taken in Redis, want 50", n)
	}
	x.Cost = 20
	for range 2 { // the last one counts, and is the same
		r.waitForRedis()
		if settled, err := r.settle(x); err != nil || !settled[0].IsKnown || settled[0].Degraded || settled[0].Remaining != 80 {
			t.Errorf("it is settled as %+v, %v", settled, err)
		}
		if n := r.taken(x); n != 20 {
			t.Errorf("%d are taken in Redis, want 20", n)
		}
	}
	r.proxy.Refuse()
	x.Cost = 0
	if o := r.take(context.Background(), x); !o.degraded() || o.decisions[0].Remaining != 80 {
		t.Errorf("the fallback says %+v, %v, want 80 remaining", o.decisions, o.err)
	}
}

// A settlement whose reply is lost is an error, and may be repeated by any process.
func TestSettlementWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(*testOptions) {})
	x := hit(daily(t, 100), "a", 50)
	if o := r.reserve(x); !o.decided() {
		t.Fatalf("the take gets %+v, %v", o.decisions, o.err)
	}
	cut := r.proxy.CutAfter("user=a")
	x.Cost = 30
	if settled, err := r.settle(x); err == nil {
		t.Fatalf("without a reply it is settled as %+v", settled)
	}
	<-cut
	if n := r.taken(x); n != 30 {
		t.Errorf("%d are taken after the settlement whose reply was lost, want 30", n)
	}
	if n := r.metric("redis_unknown_outcomes_total"); n != 1 {
		t.Errorf("%v outcomes are unknown, want 1", n)
	}
	if got := buckettest.Settle(t, r.direct, reserved.ID, x)[0]; !got.IsKnown || got.Returned != 0 || got.Remaining != 70 {
		t.Errorf("another process settles again: %+v", got)
	}
	r.waitForRedis()
	x.Cost = 70
	if settled, err := r.settle(x); err != nil || settled[0].Added != 40 {
		t.Errorf("the last one: %+v, %v", settled, err)
	}
	if n := r.taken(x); n != 70 {
		t.Errorf("%d are taken, want 70", n)
	}
}

// What was taken without Redis is settled where it was taken, as long as Redis is away and
// after it. Of what nobody here knows, a settlement fails while Redis may know it.
func TestSettlementWithoutRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t, failLocal)
	x, elsewhere := hit(daily(t, 100), "a", 50), hit(daily(t, 100), "b", 50)
	r.proxy.Refuse()
	if o := r.reserve(x); !o.degraded() || o.decisions[0].Remaining != 50 {
		t.Fatalf("the take gets %+v, %v", o.decisions, o.err)
	}
	x.Cost = 40
	if settled, err := r.settle(x); err != nil || !settled[0].Degraded || settled[0].Returned != 10 || settled[0].Remaining != 60 {
		t.Errorf("without Redis it is settled as %+v, %v", settled, err)
	}
	if settled, err := r.settle(x, elsewhere); err == nil {
		t.Errorf("what only Redis may know is settled as %+v", settled)
	}
	r.proxy.Heal(t)
	r.waitForRedis()
	x.Cost = 30
	settled, err := r.settle(x, elsewhere)
	if err != nil || !settled[0].Degraded || settled[0].Returned != 10 || settled[1].IsKnown {
		t.Errorf("with Redis again it is settled as %+v, %v", settled, err)
	}
	if n := r.taken(x); n != 0 {
		t.Errorf("%d are taken in Redis, where nobody took", n)
	}
}

// A take that loses a race is denied: it leaves no bill, and what it took is given back
// once.
func TestLostRaceLeavesNoBill(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError)
	narrow, plain, paid := dailyWindow(t, 1, nil), dailyWindow(t, 100, nil), dailyWindow(t, 100, postpaid)
	lost, taken, charged := hit(narrow, r.users[0], 1), hit(plain, r.users[1], 20), hit(paid, r.users[2], 30)
	r.comeBefore(4, func() { take(t, r.direct, lost) })
	d := make([]bucket.Decision, 3)
	if err := r.store.Reserve(t.Context(), reserved, []bucket.Hit{lost, taken, charged}, d); err != nil || d[0].Allowed() {
		t.Fatalf("the request got %+v, %v", d, err)
	}
	if n := metric(t, r.metrics, "redis_races_total"); n != 1 {
		t.Errorf("%v races are counted, want 1", n)
	}
	if n := r.left(taken); n != 100 {
		t.Errorf("%d of 100 remain of a limit that was given back", n)
	}
	taken.Cost, charged.Cost = 5, 10
	got := buckettest.Settle(t, r.direct, reserved.ID, taken, charged)
	if got[0].IsKnown || !got[1].IsKnown || got[1].Returned != 20 || r.left(taken) != 100 || r.left(charged) != 90 {
		t.Errorf("it is settled as %+v, want the postpaid limit alone", got)
	}
}

// A take over several hash tags is settled over all of them.
func TestSettlementOverSeveralTags(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError)
	l := dailyWindow(t, 100, nil)
	var hits, used []bucket.Hit
	for i, user := range r.users {
		hits = append(hits, hit(l, user, 50))
		used = append(used, hit(l, user, int64(20*i)))
	}
	if d := buckettest.Reserve(t, r.store, reserved.ID, hits...); !bucket.Allowed(d) {
		t.Fatalf("the request got %+v", d)
	}
	for i, got := range buckettest.Settle(t, r.store, reserved.ID, used...) {
		if !got.IsKnown || got.Remaining != 100-int64(20*i) || r.left(used[i]) != got.Remaining {
			t.Errorf("%s: %+v", used[i].Key, got)
		}
	}
	// Of one that cannot be read the others are settled all the same: it is an error, and
	// may be repeated.
	r.spoil(used[1])
	for i := range used {
		used[i].Cost = 7
	}
	settled := make([]bucket.Settled, len(used))
	if err := r.store.Settle(t.Context(), reserved.ID, used, settled); err == nil {
		t.Errorf("with a state that cannot be read: %+v", settled)
	}
	r.mend(used[1])
	for i := range used {
		if n := r.left(used[i]); n != 93 && i != 1 {
			t.Errorf("%s: %d remain", used[i].Key, n)
		}
	}
}

// A bill expires when the ID is no longer known, and with the last take that is undone.
func TestBillsExpire(t *testing.T) {
	t.Parallel()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	for _, a := range buckettest.Rates() {
		o := options(redisconn.Single, addr)
		s := open(t, o)
		x := hit(newLimit(t, bucket.Spec{Algorithm: a, Requests: 100, Period: time.Minute}), "a", 50)
		bill := func() (end time.Time, is bool) {
			for key, end := range redistest.Keys(t, c, o.Prefix) {
				if strings.HasSuffix(key, "~"+"one") {
					return end, true
				}
			}
			return time.Time{}, false
		}
		began := redistest.Now(t, c)
		check := func(step string) {
			t.Helper()
			end, is := bill()
			if !is {
				t.Fatalf("%s, %s: there is no bill", a, step)
			}
			wantEnd(t, c, fmt.Sprintf("%s, %s: the bill", a, step), end, began, reserved.Lasts)
		}
		buckettest.Reserve(t, s, reserved.ID, x)
		check("a take")
		for _, used := range []int64{20, 70, 0} {
			x.Cost = used
			buckettest.Settle(t, s, reserved.ID, x)
			check(fmt.Sprint("settled to ", used))
		}
		x.Cost = -50
		buckettest.Settle(t, s, reserved.ID, x)
		if _, is := bill(); is {
			t.Errorf("%s: the bill of a take that was undone is left", a)
		}
	}
}

// What was charged before a reset is in no state any more, so it is not given back out of
// what others have charged since.
func TestNothingFromBeforeAResetIsGivenBack(t *testing.T) {
	t.Parallel()
	addr := redistest.Single(t)
	o := options(redisconn.Single, addr)
	s := open(t, o)
	c := redistest.Client(t, addr)
	for _, a := range []bucket.Algorithm{bucket.TokenBucket, bucket.FixedWindow, bucket.SlidingWindow, bucket.SlidingLog} {
		l := newLimit(t, bucket.Spec{Algorithm: a, Requests: 100, Period: bucket.MaxPeriod})
		x := hit(l, a.String(), 50)
		buckettest.Reserve(t, s, "before", x)
		buckettest.Reserve(t, s, "both", x)
		key := s.Locate(&x).Key
		now, err := c.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		mark := binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(now.UnixMicro())))
		if err := c.Set(t.Context(), string(bucket.AppendReset(nil, []byte(key))), mark, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if err := c.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
		s.Forget([]string{key})
		x.Cost = 30
		take(t, s, x)
		x.Cost = 10
		buckettest.Reserve(t, s, "both", x)
		x.Cost = 0
		if got := buckettest.Settle(t, s, "before", x)[0]; !got.IsKnown || got.Returned != 0 || got.Remaining != 60 {
			t.Errorf("%s: a take from before is settled as %+v", a, got)
		}
		if got := buckettest.Settle(t, s, "both", x)[0]; got.Takes != 2 || got.Returned != 10 || got.Remaining != 70 {
			t.Errorf("%s: takes from before and after are settled as %+v", a, got)
		}
	}
}

// A bill that cannot be read fails the requests that need it, and no others.
func TestUnreadableBill(t *testing.T) {
	t.Parallel()
	addr := redistest.Single(t)
	s := open(t, options(redisconn.Single, addr))
	c := redistest.Client(t, addr)
	x := hit(daily(t, 100), "a", 50)
	whole := make([]byte, 0, 56)
	for range 7 {
		whole = binary.LittleEndian.AppendUint64(whole, math.Float64bits(math.NaN()))
	}
	key := string(bucket.AppendBill(nil, []byte(s.Locate(&x).Key), reserved.ID))
	for _, garbage := range []string{"", "x", strings.Repeat("\x00", 55), string(whole), strings.Repeat("\xff", 56), strings.Repeat("\x3f", 56)} {
		if err := c.Set(t.Context(), key, garbage, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if err := s.Reserve(t.Context(), reserved, []bucket.Hit{x}, make([]bucket.Decision, 1)); err == nil {
			t.Errorf("with the bill %q it is taken", garbage)
		}
		if err := s.Settle(t.Context(), reserved.ID, []bucket.Hit{x}, make([]bucket.Settled, 1)); err == nil {
			t.Errorf("with the bill %q it is settled", garbage)
		}
		if b, _, err := s.Bill(t.Context(), reserved.ID, &x); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("the bill %q is read as %+v, %v", garbage, b, err)
		}
	}
	x.Cost = 1
	if d := take(t, s, x)[0]; d.Remaining != 99 {
		t.Errorf("a take without an ID gets %+v", d)
	}
	buckettest.Reserve(t, s, "another", x)
	if got := buckettest.Settle(t, s, "another", x)[0]; !got.IsKnown {
		t.Errorf("another ID is settled as %+v", got)
	}
}

// A denial that is remembered ends with a settlement that returns something.
func TestSettlementEndsDenials(t *testing.T) {
	s := newSideBySide(t, time.Second)
	x := hit(newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 100, Period: 24 * time.Hour}), "a", 100)
	buckettest.Reserve(t, s.remembers, reserved.ID, x)
	x.Cost = 50
	for range 2 {
		if d := take(t, s.remembers, x); d[0].Allowed() {
			t.Fatalf("150 of 100 were allowed: %+v", d)
		}
	}
	buckettest.Settle(t, s.remembers, reserved.ID, x)
	if d := take(t, s.remembers, x); !d[0].Allowed() {
		t.Errorf("after a settlement to 50 of 100 another 50 get %+v", d)
	}
}
