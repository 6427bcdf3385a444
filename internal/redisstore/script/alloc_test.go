//go:build !race

// The race detector allocates; make test runs this file without it.

package script

import (
	"fmt"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
)

// A command in use again allocates nothing, whatever it holds.
func TestCommandIsMadeWithoutAllocations(t *testing.T) {
	s := newRig(t, nil)
	var requests []*Group
	for i := range 200 {
		l := buckettest.NewLimit(t, bucket.Spec{Algorithm: buckettest.Rates()[i%6], Requests: 3, Period: time.Hour})
		h := testHit(s, l, fmt.Sprint(i), 1)
		requests = append(requests, groupOn(s, Take, h), groupOn(s, Take, h, testHit(s, l, "b", 2)))
	}
	for _, n := range []int{1, 20, 400} {
		t.Run(fmt.Sprint(n, " requests"), func(t *testing.T) {
			c := NewCommand()
			run := func() { argsOf(s, c, requests[:n]) }
			run()
			want := 1.0 // the client's side of it
			if n > 255 {
				want++ // the number of keys
			}
			if got := testing.AllocsPerRun(100, run); got > want {
				t.Errorf("%v allocations to make a command of %d requests, want at most %v", got, n, want)
			}
		})
	}
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	hits := make([]bucket.Hit, 2)
	c := NewCommand()
	reply := []int64{1e15, 0}
	for i := range hits {
		hits[i].Limit = buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 3, Period: time.Hour})
	}
	for range 2 {
		c.Add(&Group{Mode: Take, Hits: hits, Decisions: make([]bucket.Decision, 2)})
		reply = append(reply, 2000*8+1, 1000, 2000*8+1, 1000)
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := c.Decode(reply); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations to decode a reply", n)
	}
}
