package xds

import (
	"context"
	"testing"
	"time"
)

// A server may have another large configuration each time.
func TestMuchWorkIsFollowedByARest(t *testing.T) {
	t.Parallel()
	var p pace
	const each = 20 * time.Millisecond
	work := func() {
		for range 3 {
			if err := p.work(t.Context(), func() { time.Sleep(each) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	began := time.Now()
	work()
	if owed := p.restsUntil.Sub(began); owed < 3*each*(1+restFactor) || owed > mayOwe {
		t.Errorf("a rest of %v is owed, from the beginning of the work", owed)
	}
	began = time.Now()
	p.restsUntil = began.Add(mayOwe)
	work()
	if took := time.Since(began); took < each*(3+2*restFactor) {
		t.Errorf("three times %v of work took %v", each, took)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := p.work(ended, func() { t.Error("it does not rest") }); err == nil {
		t.Error("the end does not wake it")
	}
}

func TestPausesGrowAndDifferBetweenDaemons(t *testing.T) {
	t.Parallel()
	first := make(map[time.Duration]bool)
	for range 20 {
		pause := minPause
		longest := pause
		for i := range 100 {
			pause = nextPause(pause)
			if pause < 200*time.Millisecond || pause > 10*time.Second {
				t.Fatalf("a pause of %v", pause)
			}
			if i == 0 {
				first[pause] = true
			}
			longest = max(longest, pause)
		}
		if longest < 5*time.Second {
			t.Errorf("after 100 failures the longest pause is %v", longest)
		}
	}
	if len(first) < 15 {
		t.Errorf("20 daemons have %d different pauses", len(first))
	}
}
