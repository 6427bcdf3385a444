//go:build !race

// The race detector allocates; make test runs this file without it.

package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// A batch in use again allocates the text of its command, whatever it holds.
func TestEncodeAllocatesOnce(t *testing.T) {
	s := testStore(t, nil)
	var groups []*group
	for i := range 200 {
		l := testLimit(t, bucket.Spec{Algorithm: bucket.Algorithms()[i%6], Requests: 3, Period: time.Hour})
		h := testHit(s, l, fmt.Sprint(i), 1)
		groups = append(groups, testGroup(s, take, h), testGroup(s, take, h, testHit(s, l, "b", 2)))
	}
	for _, n := range []int{1, 20, 400} {
		b := newBatch(s.seed)
		line := make([]*group, 0, n)
		run := func() {
			line = append(line[:0], groups[:n]...)
			for _, g := range line {
				g.setHash(s.seed)
			}
			b.encode(b.coalesce(line))
			b.command(s.skew, "")
		}
		run()
		want := 1.0
		if n > 255 {
			want = 2 // the number of keys
		}
		if got := testing.AllocsPerRun(100, run); got > want {
			t.Errorf("%v allocations to encode %d groups, want at most %v", got, n, want)
		}
	}
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	g := &group{mode: take, hits: make([]bucket.Hit, 2), decisions: make([]bucket.Decision, 2)}
	lines := []*group{g, g}
	reply := []int64{1e15, 0}
	for range 4 {
		reply = append(reply, 1000*8+1, 2000)
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := decode(reply, lines); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations to decode a reply", n)
	}
}
