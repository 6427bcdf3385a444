package script

import (
	"fmt"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

func settlement(n int) *Group {
	return &Group{Mode: Settle, Hits: hits(n), Decisions: make([]bucket.Decision, n), Named: &Named{Settled: make([]bucket.Settled, n)}}
}

func TestReplyTellsWhatWasSettled(t *testing.T) {
	t.Parallel()
	r, unreadable := settlement(3), settlement(1)
	if _, err := decode([]int64{1000, 0, 8, 2, 40, 0, 60, 7, 0, 1, 0, 3, 0, 0, -1}, []*Group{r, unreadable}); err != nil {
		t.Fatal(err)
	}
	want := []bucket.Settled{
		{IsKnown: true, Takes: 1, Returned: 40, Remaining: 60, ResetAfter: 7 * time.Microsecond, At: 1000, Seq: 1},
		{At: 1000, Seq: 1},
		{IsKnown: true, Added: 3, At: 1000, Seq: 1},
	}
	for i, got := range r.Named.Settled {
		if got != want[i] {
			t.Errorf("hit %d: got %+v, want %+v", i, got, want[i])
		}
	}
	if r.Err != nil || unreadable.Err != ErrUnreadable {
		t.Errorf("got the errors %v and %v", r.Err, unreadable.Err)
	}
	for _, bad := range [][]int64{
		{1000, 0}, {1000, 0, 0}, {1000, 0, 9, 0}, {1000, 0, 8}, {1000, 0, 8, 2, 0, 0, 0}, {1000, 0, 8, -1, 0, 0, 0, 0},
		{1000, 0, 8, 2, -1, 0, 0, 0}, {1000, 0, 8, 2, 0, 0, 0, 1<<53 + 1}, {1000, 0, 8, 1 << 54, 0, 0, 0, 0}, {1000, 0, 8, 0, 0},
	} {
		if _, err := decode(bad, []*Group{settlement(1)}); err == nil {
			t.Errorf("%v was taken for a reply", bad)
		}
	}
}

// What a caller chooses as an ID may be longer than others, and have any bytes.
func TestNamedRequestsTravelAlone(t *testing.T) {
	t.Parallel()
	c := NewCommand()
	var requests []*Group
	for _, id := range []string{"one", "one", "another", "\x00~\xff"} {
		h := hits(1)
		h[0].Key = []byte("key")
		r := testRequest(Take, h...)
		r.Name(id, time.Minute, testSeed)
		requests = append(requests, r)
		c.Add(r)
	}
	plain := testRequest(Take, requests[0].Hits...)
	c.Add(plain)
	c.Add(testRequest(Take, requests[0].Hits...))
	if c.Distinct() != len(requests)+1 || c.Len() != len(requests)+2 {
		t.Errorf("%d of %d requests are distinct", c.Distinct(), c.Len())
	}
	c.Prepare(t.Context(), "1", "", nil)
	got := fmt.Sprintf("%q", c.keyList)
	if want := `["key" "key~one" "key~" "key~another" "key~%00%7E\xff"]`; got != want {
		t.Errorf("the keys are %s, want %s", got, want)
	}
}
