//go:build unix

package redistest

import (
	"testing"
	"time"
)

// A server's clock steps as the test sets it, in scripts and for keys that expire, and
// the server goes on.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	s, clock := StartWithClock(t)
	c := s.p.client()
	defer c.Close()
	ctx := t.Context()
	for _, ahead := range []time.Duration{0, time.Hour, -72 * time.Hour, 1500 * time.Millisecond, 400 * 24 * time.Hour, 0} {
		clock.Set(ahead)
		before := time.Now()
		got, err := c.Time(ctx).Result()
		if err != nil {
			t.Fatal(err)
		}
		seconds, err := c.Eval(ctx, "return redis.call('TIME')[1]", nil).Int64()
		if err != nil {
			t.Fatal(err)
		}
		after := time.Now()
		for _, at := range []time.Time{got, time.Unix(seconds, 0)} {
			if at.Before(before.Add(ahead-time.Second)) || at.After(after.Add(ahead)) {
				t.Errorf("with a clock %s ahead it is %s, here %s", ahead, at, before)
			}
		}
	}
	if err := c.Set(ctx, "k", "v", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	clock.Set(2 * time.Hour)
	if n, err := c.Exists(ctx, "k").Result(); err != nil || n != 0 {
		t.Errorf("two hours later by its clock, %d keys of an hour are there, %v", n, err)
	}
	if err := ping(t, s, waitDeadline); err != nil {
		t.Error(err)
	}
}
