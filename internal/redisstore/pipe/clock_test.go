package pipe

import (
	"testing"
	"time"
)

// A wrong clock is logged at most once a minute, and a clock that is right again once.
// Neither is logged if the command took too long to be sure.
func TestWrongClockIsLoggedOnceAMinute(t *testing.T) {
	var w clockWatch
	if w.known.Load() {
		t.Error("it knows the offset before the first answer")
	}
	now := time.Now()
	for i, step := range []struct {
		after, ahead, took time.Duration
		wrong, right       bool
	}{
		{0, 0, 0, false, false},
		{0, time.Second, 0, false, false},
		{0, 10 * time.Second, 20 * time.Second, false, false}, // it may be right
		{0, 1001 * time.Millisecond, time.Millisecond, true, false},
		{59 * time.Second, time.Hour, 0, false, false},
		{time.Second, -24 * time.Hour, 0, true, false},
		{time.Second, 0, 4 * time.Second, false, false}, // it may be wrong
		{time.Second, 900 * time.Millisecond, 100 * time.Millisecond, false, true},
		{time.Second, 0, 0, false, false},
		{time.Second, 2 * time.Second, 0, false, false}, // too soon to tell
		{time.Second, 0, 0, false, false},               // and it was not logged as wrong
		{time.Minute, -2 * time.Second, 0, true, false},
		{time.Second, 0, 0, false, true},
	} {
		now = now.Add(step.after)
		clock := time.UnixMicro(now.Add(step.took / 2).Add(step.ahead).UnixMicro())
		offset, wrong, right := w.record(clock, now, step.took)
		if (offset-step.ahead).Abs() > time.Microsecond || wrong != step.wrong || right != step.right {
			t.Errorf("step %d, %s ahead: offset %s, wrong %v, right %v, want %v and %v", i, step.ahead, offset, wrong, right, step.wrong, step.right)
		}
		if !w.known.Load() || w.offset.Load() != int64(offset) {
			t.Errorf("step %d: it remembers %s", i, time.Duration(w.offset.Load()))
		}
	}
}
