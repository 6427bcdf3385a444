package integration

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// The connection is cut many times between request and reply: the caller gets
// a degraded answer, and nothing is charged twice.
func TestCutOffReplyIsChargedAtMostOnce(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, "allow", "--redis-timeout", "10s")
	for range 5 {
		cut := f.proxy.CutAfter("|user=single#")
		if r := f.ask("faults", 1, "user=single"); !degraded(r) || !ok(r) {
			t.Errorf("the caller whose reply was cut off got %v", r)
		}
		<-cut
		f.waitForRedis()
	}
	if n := f.charged("user=single"); n != 5 {
		t.Errorf("5 requests of 1 have charged %d", n)
	}

	l := f.startLoad("user=a")
	for range 20 {
		<-f.proxy.CutAfter("|user=a#")
		l.more(t, "Redis admits again", 10, admitted)
	}
	f.checkCharges("user=a", l.stop())
	if n := f.total("ratelimitd_redis_unknown_outcomes_total"); n < 25 {
		t.Errorf("%v outcomes are unknown, want 25 at least", n)
	}
	if f.breakerIsOpen() {
		t.Error("single cuts have opened the breaker")
	}
}

// Replies after the deadline reach nobody. Their requests are charged once.
func TestLateReplyIsChargedOnce(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, "allow")
	l := f.startLoad("user=a")
	for range 5 {
		l.more(t, "Redis admits", 20, admitted)
		f.proxy.Hold("evalsha")
		l.more(t, "answers are degraded", 50, degradedAnswers)
		f.proxy.Heal(t)
	}
	l.more(t, "Redis admits", 20, admitted)
	f.checkCharges("user=a", l.stop())
	if f.degraded(`reason="timeout"`) == 0 || f.total("ratelimitd_redis_unknown_outcomes_total") == 0 {
		t.Error("no answer is counted as late")
	}
	f.checkLog()
}

// Packets are lost for a while. Requests that the kernel sends again may still
// be charged, once.
func TestLostPacketsAreChargedAtMostOnce(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, "allow")
	l := f.startLoad("user=a")
	for range 5 {
		l.more(t, "Redis admits", 20, admitted)
		f.proxy.Drop()
		l.more(t, "answers are degraded", 50, degradedAnswers)
		f.proxy.Heal(t)
	}
	l.more(t, "Redis admits", 20, admitted)
	f.checkCharges("user=a", l.stop())
	f.checkLog()
}

// A distant Redis is slow, not down.
func TestDistantRedisDecidesAll(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, "error", "--redis-timeout", "10s")
	f.proxy.Delay(50 * time.Millisecond)
	l := f.startLoad("user=a")
	l.more(t, "requests are answered", 200, tally.asked)
	seen := l.stop()
	if seen.admitted != seen.asked() {
		t.Errorf("callers were told: %v", seen)
	}
	if n := f.degraded(); n != 0 || f.breakerIsOpen() {
		t.Errorf("%v answers are degraded; the breaker is open: %t", n, f.breakerIsOpen())
	}
	for i := range 8 {
		if r := f.ask("faults", 1, "few=a"); ok(r) != (i < 6) {
			t.Errorf("request %d of a limit of 6: %v", i+1, r)
		}
	}
	if n := f.charged("user=a"); n != seen.admitted {
		t.Errorf("Redis counts %d, callers were told of %d", n, seen.admitted)
	}
}

// Envoy waits 20 ms. Redis stands still before anybody knows: callers get the
// degraded answer within that time.
func TestImpatientCallersGetDegradedAnswersInTime(t *testing.T) {
	t.Parallel()
	const patience = 20 * time.Millisecond
	// The breaker opens long after callers have left.
	f := startFaulty(t, "allow", "--redis-timeout", "10s")
	f.waitForRedis()
	f.server.Pause()
	inTime, late := 0, 0
	asynctest.Eventually(t, "a caller is answered within its 20 ms", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		r, err := f.client.ShouldRateLimit(ctx, request("faults", 1, "user=a"))
		switch {
		case status.Code(err) == codes.DeadlineExceeded:
			late++ // a busy machine is slow now and then
		case err != nil:
			t.Fatal(err)
		case !degraded(r) || !ok(r):
			t.Fatalf("with Redis standing still: %v", r)
		default:
			inTime++
		}
		return inTime >= 5
	})
	t.Logf("%d were answered in time, %d were not", inTime, late)
	if f.breakerIsOpen() || f.degraded(`reason="timeout"`) < float64(inTime) {
		t.Errorf("the breaker is open: %t; %v answers were given for no answer in time", f.breakerIsOpen(), f.degraded(`reason="timeout"`))
	}
	f.server.Resume()
	f.waitForRedis()
	if n, asked := f.charged("user=a"), inTime+late; n > asked {
		t.Errorf("Redis counts %d of %d", n, asked)
	}
}

// While Redis stands still no caller waits longer than redis.timeout, and
// later callers wait less. The best of many shows it on a busy machine.
func TestAnswersWithoutRedisComeInTime(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	f := startFaulty(t, "allow", "--redis-timeout", timeout.String())
	best := time.Hour
	for range 5 {
		f.waitForRedis()
		f.server.Pause()
		began := time.Now()
		if r := f.ask("faults", 1, "user=a"); !degraded(r) {
			t.Errorf("with Redis standing still: %v", r)
		}
		best = min(best, time.Since(began))
		f.server.Resume()
	}
	if best >= 2*timeout {
		t.Errorf("the fastest answer without Redis took %s", best)
	}
}
