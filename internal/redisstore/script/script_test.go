package script

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func TestTagsAreSpreadEvenly(t *testing.T) {
	ctx := context.Background()
	c := redis.NewClient(&redis.Options{Addr: redistest.Cluster(t)[0], Protocol: 2})
	defer c.Close()
	for _, n := range []int{1, 2, 3, 32, 100} {
		t.Run(fmt.Sprint(n, " tags"), func(t *testing.T) {
			for i, tag := range NewTags(n) {
				slot, err := c.ClusterKeySlot(ctx, "rl{"+tag+"}:x").Result()
				if err != nil {
					t.Fatal(err)
				}
				if want := int64((2*i + 1) * ClusterSlots / (2 * n)); slot != want {
					t.Errorf("tag %d of %d, %q, has the slot %d, want %d", i, n, tag, slot, want)
				}
			}
		})
	}
	seen := make(map[string]bool)
	for _, tag := range NewTags(ClusterSlots) {
		seen[tag] = true
	}
	if len(seen) != ClusterSlots {
		t.Errorf("%d tags of %d are distinct", len(seen), ClusterSlots)
	}
}

// The tags are part of the store's format: daemons of all versions that share
// keys must place them alike.
func TestTagsAreStable(t *testing.T) {
	got := strings.Join(NewTags(8), " ")
	if want := "dlj 5j7 130 qsu ng4 7hq 31v 7ys"; got != want {
		t.Errorf("the tags are %q, were %q", got, want)
	}
	if got := NewTags(8).Of([]byte("api|user=alice")); got != 0 {
		t.Errorf("the place is in tag %d, was in 0", got)
	}
}

// One command decides many requests, each by itself and in their order. One whose
// state cannot be read fails alone.
func TestRequestsOfACommandAreDecidedInOrder(t *testing.T) {
	ctx := context.Background()
	prefix := fmt.Sprintf("batch-%d", time.Now().UnixNano())
	s := rigAt(t, redistest.Single(t), prefix, nil)
	l, err := bucket.NewLimit(bucket.Spec{Algorithm: bucket.SlidingWindow, Requests: 3, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	none, err := bucket.NewLimit(bucket.Spec{Algorithm: bucket.SlidingWindow, Requests: 0, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	one := func(l *bucket.Limit, user string, cost int64) *Group {
		return groupOn(s, Take, testHit(s, l, user, cost))
	}
	bad := one(l, "bad", 1)
	if err := s.redis.Set(ctx, string(bad.Hits[0].Key), "garbage", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	requests := []*Group{
		one(none, "a", 1), one(l, "a", 1), bad, one(l, "b", 4),
		one(l, "a", 2), one(l, "a", 3), one(l, "a", -1), one(l, "a", 0),
	}
	decideBy(t, s, NewCommand(), requests)
	if bad.Err == nil {
		t.Error("the unreadable state was decided")
	}
	want := []string{"never", "2", "", "never", "0", "denied", "1", "1"}
	for i, r := range requests {
		got := ""
		switch d := r.Decisions[0]; {
		case r.Err != nil:
		case d.RetryAfter == bucket.Never:
			got = "never"
		case !d.Allowed():
			got = "denied"
		default:
			got = fmt.Sprint(d.Remaining)
		}
		if got != want[i] {
			t.Errorf("request %d got %q, want %q (%+v)", i, got, want[i], r.Decisions[0])
		}
	}
}

// A key that holds no string counts as missing, and the first charge overwrites it.
func TestKeyOfAnotherTypeIsOverwritten(t *testing.T) {
	ctx := context.Background()
	s := newRig(t, nil)
	l, err := bucket.NewLimit(bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 5, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	hit := testHit(s, l, "list", 1)
	if err := s.redis.RPush(ctx, string(hit.Key), "x").Err(); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]int64{{4, 3}, {2, 1}} {
		requests := []*Group{groupOn(s, Take, hit), groupOn(s, Take, hit)}
		decideBy(t, s, NewCommand(), requests)
		for i, r := range requests {
			if r.Err != nil || r.Decisions[0].Remaining != want[i] {
				t.Errorf("got %v and %+v, want %d remaining", r.Err, r.Decisions[0], want[i])
			}
		}
	}
	if left, err := s.redis.PTTL(ctx, string(hit.Key)).Result(); err != nil || left <= 0 {
		t.Errorf("the key is kept for %v, %v", left, err)
	}
}
