package redisstore_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func TestBadOptions(t *testing.T) {
	for _, tc := range []struct {
		spoil func(*testOptions)
		want  string
	}{
		{func(o *testOptions) { o.Mode = "ring" }, "neither single, sentinel nor cluster"},
		{func(o *testOptions) { o.Addresses = nil }, "no address"},
		{func(o *testOptions) { o.Addresses = []string{"unix:redis.sock"} }, "absolute path"},
		{func(o *testOptions) { o.Mode, o.Addresses = redisconn.Cluster, []string{"unix:/redis.sock"} }, "for a single server"},
		{func(o *testOptions) { o.HashTags = 16385 }, "1 to 16384"},
		{func(o *testOptions) { o.Prefix = "a{b" }, "brace"},
		{func(o *testOptions) { o.Timeout = 0 }, "timeout"},
	} {
		o := options(redisconn.Single, "127.0.0.1:1")
		tc.spoil(&o)
		if _, _, err := newStore(o); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want one with %q", err, tc.want)
		}
	}
}

// Every key expires, never before its state has stopped to matter, and not
// much later; what remembers nothing is no key at all.
func TestEveryKeyExpires(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	const spare = 50 * time.Millisecond
	for _, a := range bucket.Algorithms() {
		for _, postpaid := range []bool{false, true} {
			o := options(redisconn.Single, addr)
			s := open(t, o)
			check := func(step string, d bucket.Decision, wantKeys int) {
				t.Helper()
				keys := redistest.Keys(t, c, o.Prefix)
				if len(keys) != wantKeys {
					t.Fatalf("%s, %s: keys %v, want %d", a, step, keys, wantKeys)
				}
				for key, ttl := range keys {
					// The time that passed since the decision makes ttl
					// smaller, so only the machine's slowness bounds it below.
					if ttl <= 0 || ttl > d.ResetAfter+spare || ttl < d.ResetAfter-10*time.Second {
						t.Errorf("%s, %s: %s lives for %s, its state matters for %s", a, step, key, ttl, d.ResetAfter)
					}
				}
			}
			l := newLimit(t, bucket.Spec{Algorithm: a, Requests: 100, Period: time.Hour, Postpaid: postpaid})
			d := take(t, s, hit(l, "a", 5))[0]
			check("the first charge", d, 1)
			d = take(t, s, hit(l, "a", 7))[0]
			check("a further charge", d, 1)
			given := d
			d = take(t, s, hit(l, "a", -2))[0]
			check("a refund", d, 1)
			if err := s.GiveBack(ctx, []bucket.Hit{hit(l, "a", 7)}, []bucket.Decision{given}); err != nil {
				t.Fatal(err)
			}
			check("a give-back", take(t, s, hit(l, "a", 0))[0], 1)
			longer := newLimit(t, bucket.Spec{Algorithm: a, Requests: 70, Period: 2 * time.Hour, Postpaid: postpaid})
			d = take(t, s, hit(longer, "a", 1))[0]
			check("new numbers", d, 1)
			shorter := newLimit(t, bucket.Spec{Algorithm: a, Requests: 90, Period: time.Minute, Postpaid: postpaid})
			d = take(t, s, hit(shorter, "a", 1))[0]
			check("shorter numbers", d, 1)
			if postpaid {
				d = take(t, s, hit(shorter, "a", 10000))[0]
				check("far beyond the limit", d, 1)
			}
			take(t, s, hit(shorter, "a", -20000))
			check("a refund to full", bucket.Decision{}, 0)
			d = take(t, s, hit(l, "b", 3))[0]
			if err := s.GiveBack(ctx, []bucket.Hit{hit(l, "b", 3)}, []bucket.Decision{d}); err != nil {
				t.Fatal(err)
			}
			if !a.IsBucket() {
				check("a give-back of all", bucket.Decision{}, 0)
			}
		}
	}
}

// So do keys that are written together, each after its own time, however long
// that is.
func TestKeysExpireApart(t *testing.T) {
	t.Parallel()
	addr := redistest.Single(t)
	o := options(redisconn.Single, addr)
	s := open(t, o)
	const long = 1_000_000_005 * time.Millisecond // the zeros must not get lost
	periods := []time.Duration{time.Hour, time.Hour, long, long, time.Minute, bucket.MaxPeriod, long - 10*time.Millisecond}
	var hits []bucket.Hit
	for i, period := range periods {
		l := newLimit(t, bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 1, Period: period})
		hits = append(hits, hit(l, fmt.Sprintf("user-%d", i), 1))
	}
	take(t, s, hits...)
	keys := redistest.Keys(t, redistest.Client(t, addr), o.Prefix)
	if len(keys) != len(periods) {
		t.Fatalf("keys %v, want %d", keys, len(periods))
	}
	for key, ttl := range keys {
		for i, period := range periods {
			if !strings.Contains(key, fmt.Sprintf("user-%d", i)) {
				continue
			}
			if ttl > period+50*time.Millisecond || ttl < period-10*time.Second {
				t.Errorf("%s lives for %s, its state matters for %s", key, ttl, period)
			}
		}
	}
}

// A state ends at a microsecond, and a key in a whole millisecond, at the end of
// which it is gone: not before the state.
func TestNoKeyExpiresBeforeItsState(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	o := options(redisconn.Single, addr)
	s := open(t, o)
	ends := map[string]int64{} // in microseconds
	for _, a := range bucket.Algorithms() {
		for i := range int64(100) {
			l := newLimit(t, bucket.Spec{Algorithm: a, Requests: 7 + i, Period: time.Hour})
			h := hit(l, fmt.Sprint(i), 1)
			d := take(t, s, h)[0]
			ends[string(h.Key)] = d.At + d.ResetAfter.Microseconds()
		}
	}
	keys := redistest.Keys(t, c, o.Prefix)
	if len(keys) != len(ends) {
		t.Fatalf("%d keys of %d", len(keys), len(ends))
	}
	for key := range keys {
		at, err := c.PExpireTime(ctx, key).Result()
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(key, "}:")
		if gone := (at + time.Millisecond).Microseconds(); gone < ends[name] {
			t.Errorf("%s is gone %d us before its state ends", key, ends[name]-gone)
		}
	}
}

// A replica whose clock is 5 s behind becomes the master: nothing is given
// away, and no key expires before its state is drained.
func TestPromotedClockIsBehind(t *testing.T) {
	t.Parallel()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	for _, a := range bucket.Algorithms() {
		o := options(redisconn.Single, addr)
		now, err := c.Time(context.Background()).Result()
		if err != nil {
			t.Fatal(err)
		}
		ahead := now.Add(5 * time.Second).UnixMicro()
		o.Clock = func() int64 { return ahead }
		old := open(t, o)
		o.Clock = nil
		promoted := open(t, o)
		l := newLimit(t, bucket.Spec{Algorithm: a, Requests: 10, Period: 4 * time.Second})
		take(t, old, hit(l, "a", 9))
		peek := take(t, promoted, hit(l, "a", 0))[0]
		if peek.Remaining != 1 || peek.At < ahead && a != bucket.FixedWindow {
			t.Errorf("%s: after the change of masters %+v", a, peek)
		}
		// Written by the new master, the key lives on its clock until the
		// moment that the old one's clock had named, not for a time counted
		// from there.
		d := take(t, promoted, hit(l, "a", 1))[0]
		if !d.Allowed() || d.Remaining != 0 {
			t.Fatalf("%s: the last request: %+v", a, d)
		}
		for key, ttl := range redistest.Keys(t, c, o.Prefix) {
			if ttl < d.ResetAfter-4*time.Second || ttl > d.ResetAfter+50*time.Millisecond {
				t.Errorf("%s: %s lives for %s, its state matters for %s", a, key, ttl, d.ResetAfter)
			}
		}
		if d := take(t, promoted, hit(l, "a", 1))[0]; d.Allowed() {
			t.Errorf("%s: one too many passed after the change of masters", a)
		}
	}
}

// The numbers of a bucket's state are whole, and small enough to be exact.
func TestUnreadableNumbersOfABucket(t *testing.T) {
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
	}
}

// Those of a span are in order, none is negative, and none is later than the
// state. Of the spans in the midst only what takes from them looks at them.
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
			last:  {math.NaN(), -1, 1, now, math.Inf(1)},
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

// A state that cannot be read fails its own request and no other; nothing of
// that request is charged.
func TestUnreadableState(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, a := range bucket.Algorithms() {
		o := options(redisconn.Single, addr)
		s := open(t, o)
		l := newLimit(t, bucket.Spec{Algorithm: a, Requests: 10, Period: time.Hour})
		good := hit(l, "good", 1)
		take(t, s, hit(l, "bad", 3), good)
		var key, value string
		for k := range redistest.Keys(t, c, o.Prefix) {
			if strings.Contains(k, "bad") {
				key, value = k, c.Get(ctx, k).Val()
			}
		}
		bad := []string{"", "x", "hello, world", value[:len(value)-1], value + "x", value[:len(value)-8], strings.Repeat("\xff", len(value))}
		for range 300 {
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
	}
}

// Spans that contradict their level cannot be read either.
func TestInconsistentState(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	o := options(redisconn.Single, addr)
	s := open(t, o)
	l := newLimit(t, bucket.Spec{Algorithm: bucket.SlidingWindow, Requests: 10, Period: time.Millisecond, Postpaid: true})
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
	}
}

// A give-back names any moment that its caller likes, also one within a tick of
// the bucket. What it leaves can be read.
func TestGiveBackWithinATick(t *testing.T) {
	t.Parallel()
	s := open(t, options(redisconn.Single, redistest.Single(t)))
	l := newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: bucket.MaxRequests, Period: bucket.MaxPeriod})
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

// A server that is slow to load the script must not have its answer taken for
// that to another command.
func TestSlowScriptLoad(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	var held atomic.Bool // the first answer to a SCRIPT LOAD
	release := make(chan struct{})
	go func() {
		for {
			down, err := proxy.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", addr)
			if err != nil {
				down.Close()
				return
			}
			var hold atomic.Bool
			go func() {
				defer up.Close()
				buffer := make([]byte, 1<<16)
				for {
					n, err := down.Read(buffer)
					if bytes.Contains(buffer[:n], []byte("script")) && held.CompareAndSwap(false, true) {
						hold.Store(true)
					}
					if _, err2 := up.Write(buffer[:n]); err != nil || err2 != nil {
						return
					}
				}
			}()
			go func() {
				defer down.Close()
				buffer := make([]byte, 1<<16)
				for {
					n, err := up.Read(buffer)
					if hold.CompareAndSwap(true, false) {
						<-release
					}
					if _, err2 := down.Write(buffer[:n]); err != nil || err2 != nil {
						return
					}
				}
			}()
		}
	}()
	o := options(redisconn.Single, proxy.Addr().String())
	o.Timeout = 300 * time.Millisecond
	s := open(t, o)
	time.AfterFunc(2*o.Timeout, func() { close(release) })
	for _, w := range s.Warnings(context.Background()) {
		if strings.Contains(w, "maxmemory-policy is") {
			t.Errorf("another command's answer was read as the policy: %s", w)
		}
	}
	open, none := newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1e6, Period: time.Second}), newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Period: time.Second})
	d := make([]bucket.Decision, 1)
	asynctest.Eventually(t, "the server decides", func() bool {
		return s.Take(context.Background(), []bucket.Hit{hit(open, "a", 1)}, d) == nil
	})
	for range 50 {
		if s.Take(context.Background(), []bucket.Hit{hit(none, "a", 1)}, d) == nil && d[0].Allowed() {
			t.Fatal("a limit of 0 has allowed")
		}
		if s.Take(context.Background(), []bucket.Hit{hit(open, "a", 1)}, d) == nil && !d[0].Allowed() {
			t.Fatal("a limit with room has denied")
		}
	}
}

// A request can hold more keys than Lua can unpack.
func TestManyKeysAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t, options(redisconn.Single, redistest.Single(t)))
	l := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 2, Period: 24 * time.Hour})
	var hits []bucket.Hit
	for i := range 10_000 {
		hits = append(hits, hit(l, fmt.Sprint(i), 1))
	}
	take(t, s, hits...)
	for i, d := range take(t, s, hits...) {
		if !d.Allowed() || d.Remaining != 0 {
			t.Fatalf("hit %d of %d, the second time: %+v", i, len(hits), d)
		}
	}
	if bucket.Allowed(take(t, s, hits[9_999])) {
		t.Error("the last key was not charged")
	}
}

func TestScriptFlush(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	s := open(t, options(redisconn.Single, server.Addr()))
	l := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 10, Period: 24 * time.Hour})
	for want := int64(9); want >= 5; want-- {
		if got := take(t, s, hit(l, "a", 1))[0].Remaining; got != want {
			t.Fatalf("%d remain, want %d", got, want)
		}
		if err := redistest.Client(t, server.Addr()).ScriptFlush(ctx).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// A take whose answer did not come is not sent again: a server that stood
// still has been asked once when it goes on.
func TestTakeIsNeverRetried(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	o := options(redisconn.Single, server.Addr())
	patient := open(t, o)
	o.Timeout = 50 * time.Millisecond
	s := open(t, o)
	l := newLimit(t, bucket.Spec{Algorithm: bucket.SlidingLog, Requests: 100, Period: time.Hour})
	take(t, patient, hit(l, "a", 1))
	asynctest.Eventually(t, "a first quick answer", func() bool {
		return s.Take(ctx, []bucket.Hit{hit(l, "a", 0)}, make([]bucket.Decision, 1)) == nil
	})
	server.Pause()
	const asked = 5
	for range asked {
		err := s.Take(ctx, []bucket.Hit{hit(l, "a", 1)}, make([]bucket.Decision, 1))
		if err == nil {
			t.Fatal("a server that stands still has answered")
		}
	}
	server.Resume()
	// Whatever was in the sockets is executed before a new command's answer
	// at the latest when their connections are seen closed.
	asynctest.Eventually(t, "no connection but ours", func() bool {
		list, err := redistest.Client(t, server.Addr()).ClientList(ctx).Result()
		return err == nil && strings.Count(list, "cmd=evalsha") <= 1
	})
	if taken := 99 - take(t, patient, hit(l, "a", 0))[0].Remaining; taken > asked {
		t.Errorf("%d takes were asked, %d were charged", asked, taken)
	}
}

func TestWarnsOfEviction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	s := open(t, options(redisconn.Single, server.Addr()))
	if w := s.Warnings(ctx); len(w) > 0 {
		t.Errorf("noeviction gives the warnings %q", w)
	}
	if err := redistest.Client(t, server.Addr()).ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	if w := s.Warnings(ctx); len(w) != 1 || !strings.Contains(w[0], `"allkeys-lru"`) || !strings.Contains(w[0], server.Addr()) {
		t.Errorf("allkeys-lru gives the warnings %q", w)
	}
}

// Who forgot the password is told so, and not that the server hung up.
func TestNoPassword(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "right-secret")
	err := open(t, options(redisconn.Single, server.Addr())).Ping(context.Background())
	if err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("without a password the error is %v", err)
	}
}

func TestPasswordIsAskedAtEachConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t, "--requirepass", "first-secret")
	var password atomic.Value
	password.Store("wrong-secret")
	o := options(redisconn.Single, server.Addr())
	o.Password = func() (string, error) { return password.Load().(string), nil }
	s := open(t, o)
	err := s.Ping(ctx)
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Fatalf("a wrong password gives the error %v", err)
	}
	password.Store("first-secret")
	if err := s.Ping(ctx); err != nil {
		t.Errorf("the right password, given later: %v", err)
	}
}

// On a cluster the requests that name two keys of different slots race with
// those that name one of them. Nothing is admitted beyond a limit, and what a
// request that lost the race had taken is there again.
func TestGroupsOverSlotsOfACluster(t *testing.T) {
	t.Parallel()
	o := options(redisconn.Cluster, redistest.Cluster(t)...)
	stores := []*redisstore.Store{open(t, o), open(t, o), open(t, o)}
	for _, a := range bucket.Algorithms() {
		narrow := newLimit(t, bucket.Spec{Algorithm: a, Requests: 40, Period: 24 * time.Hour})
		wide := newLimit(t, bucket.Spec{Algorithm: a, Requests: 900, Period: 24 * time.Hour})
		var both, alone atomic.Int64
		var wait sync.WaitGroup
		for i := range 60 {
			wait.Go(func() {
				s := stores[i%len(stores)]
				if i%2 == 0 {
					if bucket.Allowed(take(t, s, hit(narrow, "n", 1), hit(wide, "w", 1))) {
						both.Add(1)
					}
				} else if bucket.Allowed(take(t, s, hit(narrow, "n", 1))) {
					alone.Add(1)
				}
			})
		}
		wait.Wait()
		// Buckets refill a little while this runs, and a give-back to one
		// returns a little less than was taken.
		slack := int64(0)
		if a.IsBucket() {
			slack = 1
		}
		if n := both.Load() + alone.Load(); n > 40+slack || n < 30 {
			t.Errorf("%s: %d admitted by a limit of 40", a, n)
		}
		left := take(t, stores[0], hit(wide, "w", 0))[0].Remaining
		if want := 900 - both.Load(); left < want-slack || left > want+slack {
			t.Errorf("%s: %d remain of 900 after %d were admitted", a, left, both.Load())
		}
	}
}

// A limit that denied at the check may have room again when what is postpaid
// is charged; the request stays denied, for nothing else of it was taken.
func TestDenialStaysADenial(t *testing.T) {
	t.Parallel()
	o := options(redisconn.Cluster, redistest.Cluster(t)...)
	var clock, step atomic.Int64
	clock.Store(1e15)
	o.Clock = func() int64 { return clock.Add(step.Load()) }
	s := open(t, o)
	plain := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 5, Period: 24 * time.Hour})
	paid := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 1, Period: time.Millisecond, Postpaid: true})
	for i := range 50 {
		// Pairs of places, nearly all on two tags of the 32. Each call now
		// takes place 600 us after the one before.
		user := fmt.Sprint(i)
		step.Store(0)
		take(t, s, hit(paid, "paid"+user, 1))
		step.Store(600)
		d := take(t, s, hit(plain, user, 1), hit(paid, "paid"+user, 1))
		step.Store(0)
		left := take(t, s, hit(plain, user, 0))[0].Remaining
		if bucket.Allowed(d) != (left == 4) {
			t.Errorf("%d remain of 5 after a request that got %+v", left, d)
		}
	}
}

func TestDeniedGroupOverSlotsIsFree(t *testing.T) {
	t.Parallel()
	s := open(t, options(redisconn.Cluster, redistest.Cluster(t)...))
	l := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 2, Period: 24 * time.Hour})
	paid := newLimit(t, bucket.Spec{Name: "used", Algorithm: bucket.FixedWindow, Requests: 10, Period: 24 * time.Hour, Postpaid: true})
	take(t, s, hit(l, "empty", 2))
	group := []bucket.Hit{hit(paid, "p", 4), hit(l, "empty", 1), hit(l, "r", -1)}
	for i := range 20 {
		group = append(group, hit(l, fmt.Sprint(i), 1))
	}
	take(t, s, hit(l, "r", 1))
	d := take(t, s, group...)
	if bucket.Allowed(d) || d[1].Allowed() || !d[3].Allowed() || d[3].Remaining != 2 {
		t.Fatalf("the group: %+v", d)
	}
	if d[0].Remaining != 6 {
		t.Errorf("%d remain of the postpaid limit, which is charged all the same; want 6", d[0].Remaining)
	}
	for i := range 20 {
		if p := take(t, s, hit(l, fmt.Sprint(i), 0))[0]; p.Remaining != 2 {
			t.Errorf("key %d was charged by a denied group: %+v", i, p)
		}
	}
	if p := take(t, s, hit(l, "r", 0))[0]; p.Remaining != 1 {
		t.Errorf("a refund was made by a denied group: %+v", p)
	}
	// And the same with room is charged everywhere, once.
	take(t, s, hit(l, "empty", -2))
	if d := take(t, s, group...); !bucket.Allowed(d) || d[0].Remaining != 2 || d[2].Remaining != 2 || d[3].Remaining != 1 {
		t.Errorf("the group with room: %+v", d)
	}
}

// MOVED and ASK are followed while a slot is on the move and after; TRYAGAIN
// is waited out. No charge is lost or made twice.
func TestSlotOnTheMove(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cluster := redistest.StartCluster(t, 0)
	o := options(redisconn.Cluster, cluster.Addrs()...)
	s := open(t, o)
	l := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 100, Period: 24 * time.Hour})
	second := newLimit(t, bucket.Spec{Name: "second", Algorithm: bucket.FixedWindow, Requests: 100, Period: 24 * time.Hour})
	group := []bucket.Hit{hit(l, "a", 1), hit(second, "a", 1)}
	take(t, s, group...)

	var source *redis.Client
	var keys []string
	for _, m := range cluster.Masters {
		c := redistest.Client(t, m.Addr())
		for key := range redistest.Keys(t, c, o.Prefix) {
			source = c
			keys = append(keys, key)
		}
	}
	if len(keys) != 2 {
		t.Fatalf("keys %q, want the two of the group on one node", keys)
	}
	slot := source.ClusterKeySlot(ctx, keys[0]).Val()
	var target *redis.Client
	for _, m := range cluster.Masters {
		if m.Addr() != source.Options().Addr {
			target = redistest.Client(t, m.Addr())
		}
	}
	beginMove(t, source, target, slot)

	take(t, s, group...) // both keys are still at the source
	migrate(t, source, target, keys[:1])
	// One key is here and one there: TRYAGAIN, until the second has moved.
	took := make(chan error, 1)
	go func() { took <- s.Take(ctx, group, make([]bucket.Decision, len(group))) }()
	asynctest.Eventually(t, "the group was sent, and sent again", func() bool {
		return refusals(t, source, "TRYAGAIN")+refusals(t, target, "TRYAGAIN") >= 2
	})
	migrate(t, source, target, keys[1:])
	if err := <-took; err != nil {
		t.Fatal(err)
	}
	take(t, s, group...) // ASK: both keys are at the target, the slot is not
	endMove(t, source, target, slot)
	d := take(t, s, group...) // MOVED
	if d[0].Remaining != 95 || d[1].Remaining != 95 {
		t.Errorf("after 5 takes of 1 of 100: %+v", d)
	}
}

// refusals is how often a node has answered with an error of this kind.
func refusals(t testing.TB, c *redis.Client, kind string) (n int) {
	t.Helper()
	info, err := c.InfoMap(context.Background(), "errorstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Sscanf(info["Errorstats"]["errorstat_"+kind], "count=%d", &n)
	return n
}

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	sentinels, master, replica := redistest.StartSentinel(t, "limits")
	o := options(redisconn.Sentinel, sentinels...)
	o.SentinelMaster = "limits"
	s := open(t, o)
	l := newLimit(t, bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 100, Period: 24 * time.Hour})
	take(t, s, hit(l, "a", 60))
	if err := open(t, options(redisconn.Single, replica.Addr())).Ping(ctx); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("a replica, which cannot decide, answers a ping with %v", err)
	}
	asynctest.Eventually(t, "the replica has the key", func() bool { return len(redistest.Keys(t, redistest.Client(t, replica.Addr()), o.Prefix)) == 1 })
	master.Kill()
	d := make([]bucket.Decision, 1)
	asynctest.Eventually(t, "the replica was promoted", func() bool {
		return s.Take(ctx, []bucket.Hit{hit(l, "a", 0)}, d) == nil
	})
	if d[0].Remaining != 40 {
		t.Errorf("%d remain after the failover, want 40", d[0].Remaining)
	}
	// The promoted replica has no script yet on new connections; it decides.
	if d := take(t, s, hit(l, "a", 41))[0]; d.Allowed() {
		t.Errorf("more than remains was allowed: %+v", d)
	}
}

// TestSentinelsWithPasswords has sentinels that ask for a user and a password,
// and a master that asks for none.
func TestSentinelsWithPasswords(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	sentinels, _, _ := redistest.StartSentinel(t, "limits")
	for _, addr := range sentinels {
		c := redistest.Client(t, addr)
		for _, user := range []string{"guard", "default"} {
			if err := c.Do(ctx, "acl", "setuser", user, "on", "resetpass", ">"+user+"-secret", "allchannels", "+@all").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	o := options(redisconn.Sentinel, sentinels...)
	o.SentinelMaster = "limits"
	for _, tc := range []struct {
		username, password string
		good               bool
	}{
		{"", "", false},
		{"guard", "default-secret", false},
		{"", "default-secret", true},
		{"guard", "guard-secret", true},
	} {
		o.SentinelUsername, o.SentinelPassword = tc.username, tc.password
		if err := open(t, o).Ping(ctx); (err == nil) != tc.good {
			t.Errorf("as %q with %q: %v", tc.username, tc.password, err)
		}
	}
}

func TestTakeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, options(redisconn.Single, server.Addr()))
	l := newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1, Period: time.Second})
	take(t, s, hit(l, "a", 1))
	server.Pause()
	defer server.Resume()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if err := s.Take(ctx, []bucket.Hit{hit(l, "a", 1)}, make([]bucket.Decision, 1)); err == nil {
		t.Errorf("error %v", err)
	}
}

// Keys of hostile entries stay in the slot of their tag, whatever they hold.
func TestHostileEntriesKeepTheirSlot(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	o := options(redisconn.Cluster, redistest.Cluster(t)...)
	o.HashTags = 1
	s := open(t, o)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: o.Addresses, Protocol: 2})
	t.Cleanup(func() { c.Close() })
	l := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 3, Period: 24 * time.Hour})
	values := []string{"", "{", "}", "{}", "{a}", "}{", "\x00", "a|b=c", "#token_bucket", strings.Repeat("ä{", 2500), "\xff\xfe"}
	for _, v := range values {
		take(t, s, hit(l, v, 1))
	}
	keys := make(map[string]bool)
	var mu sync.Mutex
	if err := c.ForEachMaster(ctx, func(_ context.Context, m *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		for key := range redistest.Keys(t, m, o.Prefix) {
			keys[key] = true
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(keys) != len(values) {
		t.Errorf("%d values have %d keys", len(values), len(keys))
	}
	slots := make(map[int64]bool)
	for key := range keys {
		if len(key) > bucket.MaxKey+64 || bytes.ContainsAny([]byte(key), "\x00\n") {
			t.Errorf("the key %q", key)
		}
		tag := key[strings.Index(key, "{")+1 : strings.Index(key, "}")]
		if strings.Count(key, "{") != 1 || strings.Count(key, "}") != 1 || tag == "" {
			t.Errorf("the key %q has other braces than its tag's", key)
		}
		slots[c.ClusterKeySlot(ctx, key).Val()] = true
	}
	if len(slots) != 1 {
		t.Errorf("one hash tag, but several slots: %v", slots)
	}
}
