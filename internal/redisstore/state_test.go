package redisstore_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// The numbers of a bucket's state are whole, and small enough to be exact.
func TestBucketWithBadNumbersCannotBeRead(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	o := options(redisconn.Single, addr)
	s := open(t, o)
	l := newLimit(t, bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 10, Period: time.Hour})
	take(t, s, hit(l, "bad", 3))
	var key, value string
	for k := range redistest.Keys(t, c, o.Prefix) {
		key, value = k, c.Get(ctx, k).Val()
	}
	const last, expires, level, unit = 0, 1, 2, 3
	if len(value) != 4*8 {
		t.Fatalf("a state has %d bytes", len(value))
	}
	tooLarge := math.Nextafter(1<<53, math.Inf(1))
	for place, numbers := range map[int][]float64{
		last:    {math.NaN(), -1, 0.5, tooLarge, math.Inf(1)},
		expires: {math.NaN(), -1, 0.5, tooLarge, math.Inf(1)},
		level:   {math.NaN(), -1, tooLarge, math.Inf(1)},
		unit:    {math.NaN(), -1, 0, 0.5, 1.5, tooLarge, math.Inf(1)},
	} {
		t.Run(fmt.Sprint("number ", place), func(t *testing.T) {
			for _, number := range numbers {
				state := []byte(value)
				binary.LittleEndian.PutUint64(state[8*place:], math.Float64bits(number))
				if err := c.Set(ctx, key, state, time.Hour).Err(); err != nil {
					t.Fatal(err)
				}
				err := s.Take(ctx, []bucket.Hit{hit(l, "bad", 1)}, make([]bucket.Decision, 1))
				if err == nil || !strings.Contains(err.Error(), "cannot be read") {
					t.Errorf("a state whose number %d is %g gives the error %v", place, number, err)
				}
			}
		})
	}
}

// A state that cannot be read fails its own request and no other; nothing of
// that request is charged.
func TestUnreadableStateFailsItsRequestAlone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, a := range buckettest.Rates() {
		t.Run(a.String(), func(t *testing.T) {
			o := options(redisconn.Single, addr)
			s := open(t, o)
			l := newLimit(t, bucket.Spec{Algorithm: a, Requests: 10, Period: time.Hour})
			good := hit(l, "good", 1)
			take(t, s, hit(l, "bad", 3), good)
			var key, value string
			for k := range redistest.Keys(t, c, o.Prefix) {
				if strings.Contains(strings.TrimPrefix(k, o.Prefix), "bad") {
					key, value = k, c.Get(ctx, k).Val()
				}
			}
			bad := []string{"", "x", "hello, world", value[:len(value)-1], value + "x", value[:len(value)-8], strings.Repeat("\xff", len(value))}
			for range soaktest.Long(30, 300) {
				b := []byte(value)
				for range 1 + rng.IntN(3) {
					b[rng.IntN(len(b))] = byte(rng.Uint32())
				}
				bad = append(bad, string(b))
			}
			for i, text := range bad {
				if err := c.Set(ctx, key, text, time.Hour).Err(); err != nil {
					t.Fatal(err)
				}
				// Changed bytes may still be a state, and then it decides.
				err := s.Take(ctx, []bucket.Hit{hit(l, "bad", 1), good}, make([]bucket.Decision, 2))
				if i < 7 && (err == nil || !strings.Contains(err.Error(), "cannot be read")) {
					t.Errorf("%s: %q gives the error %v", a, text, err)
				} else if err != nil && !strings.Contains(err.Error(), "cannot be read") {
					t.Errorf("%s: %q gives the error %v", a, text, err)
				}
				if err := s.Take(ctx, []bucket.Hit{good, hit(l, "bad", -1)}, make([]bucket.Decision, 2)); err != nil && !strings.Contains(err.Error(), "cannot be read") {
					t.Errorf("%s: a refund with %q gives the error %v", a, text, err)
				}
				if err := s.GiveBack(ctx, []bucket.Hit{hit(l, "bad", 1)}, []bucket.Decision{{At: time.Now().UnixMicro()}}); err != nil && !strings.Contains(err.Error(), "cannot be read") {
					t.Errorf("%s: a give-back with %q gives the error %v", a, text, err)
				}
				take(t, s, hit(l, "good", -10))
			}
			if err := c.Set(ctx, key, "x", time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
			before := take(t, s, hit(l, "good", 0))[0].Remaining
			if err := s.Take(ctx, []bucket.Hit{good, hit(l, "bad", 1)}, make([]bucket.Decision, 2)); err == nil {
				t.Errorf("%s: a group with an unreadable state was decided", a)
			}
			if after := take(t, s, hit(l, "good", 0))[0].Remaining; after != before {
				t.Errorf("%s: a group that failed was charged: %d, then %d remain", a, before, after)
			}
		})
	}
}

// A state whose spans contradict its level cannot be read.
func TestSpansThatContradictTheirLevelCannotBeRead(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	o := options(redisconn.Single, addr)
	s := open(t, o)
	l := newLimit(t, bucket.Spec{Algorithm: bucket.SlidingWindow, Requests: 10, Period: time.Millisecond, Postpaid: bucket.PostpaidAlways})
	take(t, s, hit(newLimit(t, bucket.Spec{Algorithm: bucket.SlidingWindow, Requests: 10, Period: time.Hour}), "bad", 1))
	var key string
	for key = range redistest.Keys(t, c, o.Prefix) {
	}
	now := float64(time.Now().UnixMicro())
	for name, numbers := range map[string][]float64{
		"a level without a living span": {now - 1e5, now + 3e7, 1, now - 1e5, now - 1e5, 0},
		"a level beyond all bounds":     {now + 1e7, now + 3e7, 1 << 53, now + 1e7, now + 1e7, 1},
		"living spans without a level":  {now + 1e7, now + 3e7, 0, now + 1e7, now + 1e7, 1},
		"a wrong clock's level":         {now + 1e9, now + 2e9, 2, now + 1e9, now + 1e9, 1},
		"a wrong clock's span":          {now + 1e9, now + 2e9, 1, now + 2e9, now + 2e9, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var state []byte
			for _, n := range numbers {
				state = binary.LittleEndian.AppendUint64(state, math.Float64bits(n))
			}
			if err := c.Set(ctx, key, state, time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
			for _, cost := range []int64{1, 0, -1} {
				if err := s.Take(ctx, []bucket.Hit{hit(l, "bad", cost)}, make([]bucket.Decision, 1)); err == nil || !strings.Contains(err.Error(), "cannot be read") {
					t.Errorf("%s, cost %d: %v", name, cost, err)
				}
			}
			if got := c.Get(ctx, key).Val(); got != string(state) {
				t.Errorf("%s: the state was overwritten", name)
			}
		})
	}
}

// A give-back may name any moment, also one within a tick of the bucket. The state
// after it can be read.
func TestGiveBackWithinATickLeavesAReadableState(t *testing.T) {
	t.Parallel()
	s := open(t, options(redisconn.Single, redistest.Single(t)))
	l := newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1<<32 - 1, Period: bucket.MaxPeriod})
	h := hit(l, "a", 1_000_000)
	taken := take(t, s, h)
	if l.Quantum == 1 || taken[0].At%l.Quantum != 0 {
		t.Fatalf("a take at %d of ticks of %d us", taken[0].At, l.Quantum)
	}
	taken[0].At--
	if err := s.GiveBack(context.Background(), []bucket.Hit{h}, taken); err != nil {
		t.Fatal(err)
	}
	// A tick's refill is not given back a second time.
	if d := take(t, s, hit(l, "a", 0))[0]; d.Remaining <= taken[0].Remaining || d.Remaining >= l.Capacity {
		t.Errorf("%d remain of %d after a give-back, %d before it", d.Remaining, l.Capacity, taken[0].Remaining)
	}
}

// The numbers of a span are in order, none is negative, and none is later than the
// longest lease after the state: here a second later. Spans in the middle are looked at only when something is taken from them.
func TestUnreadableNumbersOfASpan(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	o := options(redisconn.Single, addr)
	clock := asynctest.NewClock()
	o.Clock = clock.Micros
	s := open(t, o)
	l := newLimit(t, bucket.Spec{Algorithm: bucket.SlidingLog, Requests: 10, Period: time.Hour})
	for range 3 {
		take(t, s, hit(l, "bad", 2))
		clock.Move(time.Second)
	}
	var key, value string
	for k := range redistest.Keys(t, c, o.Prefix) {
		key, value = k, c.Get(ctx, k).Val()
	}
	const header, span = 3 * 8, 3 * 8
	if len(value) != header+3*span {
		t.Fatalf("a state of three stamps has %d bytes", len(value))
	}
	const first, last, count = 0, 1, 2
	now, most := float64(clock.Micros()), float64(1<<52)
	for i, which := range []string{"oldest", "middle", "newest"} {
		for place, numbers := range map[int][]float64{
			first: {math.NaN(), -1, now, math.Inf(1)},
			last:  {math.NaN(), -1, 1, now + 1, math.Inf(1)},
			count: {math.NaN(), -1, most + 1, math.Inf(1)},
		} {
			for _, number := range numbers {
				state := []byte(value)
				binary.LittleEndian.PutUint64(state[header+i*span+8*place:], math.Float64bits(number))
				if err := c.Set(ctx, key, state, time.Hour).Err(); err != nil {
					t.Fatal(err)
				}
				for _, cost := range []int64{-1, 0, 1} {
					if which == "middle" && cost >= 0 {
						continue
					}
					err := s.Take(ctx, []bucket.Hit{hit(l, "bad", cost)}, make([]bucket.Decision, 1))
					if err == nil || !strings.Contains(err.Error(), "cannot be read") {
						t.Errorf("cost %d: the %s span, whose number %d is %g, gives the error %v", cost, which, place, number, err)
					}
				}
			}
		}
	}
}
