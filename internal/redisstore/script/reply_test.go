package script

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

func FuzzReply(f *testing.F) {
	f.Add([]byte{77, 0, 41, 9}, uint8(1), uint8(1))
	f.Add([]byte{77, 2, 255}, uint8(2), uint8(1))
	f.Add([]byte{77, 255, 41, 9}, uint8(1), uint8(1))
	f.Add([]byte{77, 0, 4, 3, 0, 1, 3, 1, 0, 255}, uint8(1), uint8(1))
	f.Add([]byte{77, 1, 41, 9, 34, 10, 0, 8}, uint8(0x10), uint8(3))
	f.Fuzz(func(t *testing.T, numbers []byte, shape, count uint8) {
		reply := fuzzReply(numbers)
		requests := fuzzRequests(shape, count)
		h, err := decode(reply, requests)
		if err != nil {
			return
		}
		// An accepted reply has a meaning for every request. It could be written again
		// as it was read: it fits exactly.
		if h.Clock != reply[0] || h.Mended != reply[1] || h.Clock < 0 || h.Mended < 0 {
			t.Errorf("%v begins with %+v", reply, h)
		}
		used := 2
		for _, head := range requests {
			for g := head; g != nil; g = g.same {
				if reply[used] == replySame && g != head {
					used++
					break
				}
				if g.Err != nil || g.Mode == GiveBack {
					used++
					continue
				}
				for _, d := range g.Decisions {
					if d.ResetAfter != time.Duration(reply[used]/8)*time.Microsecond || d.Remaining+d.RoomBefore < 0 || d.Wait < 0 || d.RetryAfter < bucket.Unknown || d.At < 0 {
						t.Errorf("%v gives %+v", reply, d)
					}
					used += 1 + int(reply[used]%8)
				}
			}
		}
		if used != len(reply) {
			t.Errorf("%d of %d numbers were used", used, len(reply))
		}
	})
}

// fuzzReply is a reply of small numbers.
func fuzzReply(numbers []byte) (reply []int64) {
	for _, n := range numbers {
		reply = append(reply, int64(int8(n)))
	}
	return reply
}

// hits are hits on a limit that charges only what it allows.
func hits(n int) []bucket.Hit {
	l, err := bucket.NewLimit(bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 9, Period: time.Hour})
	if err != nil {
		panic(err) // its numbers stand above
	}
	return slices.Repeat([]bucket.Hit{{Limit: l, Cost: 1}}, n)
}

// fuzzRequests are up to 3 requests with up to 4 equals of 1 or 2 hits.
func fuzzRequests(shape, count uint8) (requests []*Group) {
	for i := range int(shape % 4) {
		var head *Group
		for range 1 + int(count>>(2*i))%4 {
			n := 1 + int(shape>>(2*i))%2
			head = &Group{Mode: Mode(int(shape)+i) % 3, Decisions: make([]bucket.Decision, n), Hits: hits(n), same: head}
			if head.Mode == GiveBack {
				head.same = nil
			}
		}
		requests = append(requests, head)
	}
	return requests
}

// decode reads a reply to a command with these requests, each the first of equal ones.
func decode(reply []int64, requests []*Group) (Heading, error) {
	c := &Command{requests: requests}
	return c.Decode(reply)
}

func TestBadReplyIsRefused(t *testing.T) {
	for _, bad := range [][]int64{
		{}, {-1, 0, 9, 1}, {1000}, {1000, 0}, {1000, -1, 9, 1}, {1000, 1 << 54, 9, 1}, {1000, 0, 0}, {1000, 0, 8}, {1000, 0, 8, 1}, {1000, 0, 13, 1, 1, 1, 1, 1},
		{1000, 0, -7, 1}, {1000, 0, 9, -1}, {1000, 0, 10, 1, -3}, {1000, 0, 12, 1, 0, 0, -1001}, {1000, 0, 9, 1, 2}, {1000, 0, -1, 0},
	} {
		t.Run(fmt.Sprint(bad), func(t *testing.T) {
			if _, err := decode(bad, []*Group{{Mode: Take, Hits: hits(1), Decisions: make([]bucket.Decision, 1)}}); err == nil {
				t.Errorf("%v was taken for a reply", bad)
			}
		})
	}
}
