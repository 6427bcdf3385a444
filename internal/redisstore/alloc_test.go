//go:build !race

// The race detector allocates; make test runs this file without it.

package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// A batch in use again allocates the text of its command, whatever it holds.
func TestEncodeAllocatesOnce(t *testing.T) {
	s := testStore(t, nil)
	var groups []*script.Group
	for i := range 200 {
		l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.Algorithms()[i%6], Requests: 3, Period: time.Hour})
		h := testHit(s, l, fmt.Sprint(i), 1)
		groups = append(groups, testGroup(s, script.Take, h), testGroup(s, script.Take, h, testHit(s, l, "b", 2)))
	}
	for _, n := range []int{1, 20, 400} {
		t.Run(fmt.Sprint(n, " groups"), func(t *testing.T) {
			b := script.NewEncoder(s.seed)
			line := make([]*script.Group, 0, n)
			run := func() {
				line = append(line[:0], groups[:n]...)
				for _, g := range line {
					g.SetHash(s.seed)
				}
				b.Encode(b.Coalesce(line))
				b.Command(s.skew, "")
			}
			run()
			want := 1.0
			if n > 255 {
				want = 2 // the number of keys
			}
			if got := testing.AllocsPerRun(100, run); got > want {
				t.Errorf("%v allocations to encode %d groups, want at most %v", got, n, want)
			}
		})
	}
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	g := &script.Group{Mode: script.Take, Hits: make([]bucket.Hit, 2), Decisions: make([]bucket.Decision, 2)}
	lines := []*script.Group{g, g}
	reply := []int64{1e15, 0}
	for range 4 {
		reply = append(reply, 1000*8+1, 2000)
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := script.Decode(reply, lines); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations to decode a reply", n)
	}
}
