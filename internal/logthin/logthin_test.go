package logthin

import (
	"sync"
	"testing"
	"time"
)

var start = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

// TestOneLineAnInterval follows one Thinner through lines at given moments.
func TestOneLineAnInterval(t *testing.T) {
	var thinner Thinner
	steps := []struct {
		after   time.Duration // start
		due     bool
		leftOut int
	}{
		{0, true, 0},
		{time.Nanosecond, false, 0},
		{time.Minute - time.Nanosecond, false, 0},
		{time.Minute, true, 2},
		{2*time.Minute - time.Nanosecond, false, 0},
		{5 * time.Minute, true, 1},
		{4 * time.Minute, false, 0}, // the clock was set back
		{6 * time.Minute, true, 1},
		{7 * time.Minute, true, 0},
	}
	for i, step := range steps {
		leftOut, due := thinner.Due(start.Add(step.after), time.Minute)
		if leftOut != step.leftOut || due != step.due {
			t.Errorf("step %d, after %s: got %d lines left out and due %t, want %d and %t", i, step.after, leftOut, due, step.leftOut, step.due)
		}
	}
}

func TestLineIsDueAtOnceAfterReset(t *testing.T) {
	var thinner Thinner
	thinner.Due(start, time.Minute)
	if _, due := thinner.Due(start.Add(time.Second), time.Minute); due {
		t.Error("a second line within the interval is due")
	}
	thinner.Reset()
	if leftOut, due := thinner.Due(start.Add(2*time.Second), time.Minute); !due || leftOut != 0 {
		t.Errorf("after Reset: got %d lines left out and due %t, want 0 and true", leftOut, due)
	}
	if _, due := thinner.Due(start.Add(3*time.Second), time.Minute); due {
		t.Error("Reset makes more than one line due")
	}
}

// TestEveryLineIsDueWithoutAnInterval: an interval of 0 leaves nothing out.
func TestEveryLineIsDueWithoutAnInterval(t *testing.T) {
	var thinner Thinner
	for range 3 {
		if leftOut, due := thinner.Due(start, 0); !due || leftOut != 0 {
			t.Errorf("got %d lines left out and due %t, want 0 and true", leftOut, due)
		}
	}
}

func TestOneOfConcurrentLinesIsDue(t *testing.T) {
	const lines = 100
	var thinner Thinner
	var mu sync.Mutex
	dues := 0
	var callers sync.WaitGroup
	for range lines {
		callers.Go(func() {
			if _, due := thinner.Due(start, time.Minute); due {
				mu.Lock()
				dues++
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	if dues != 1 {
		t.Errorf("%d lines of the same moment are due, want 1", dues)
	}
	if leftOut, _ := thinner.Due(start.Add(time.Minute), time.Minute); leftOut != lines-1 {
		t.Errorf("%d lines left out, want %d", leftOut, lines-1)
	}
}
