package bucket_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
)

// Of a few hits and of many, those of one holder are one hit, and those of several
// stay apart.
func TestMergeKeepsHoldersApart(t *testing.T) {
	l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 9, Period: time.Hour})
	hit := func(key, holder string, cost int64) bucket.Hit {
		h := buckettest.Hit(l, key, cost)
		h.Holder = holder
		return h
	}
	group := []bucket.Hit{
		hit("a", "x", 1), hit("a", "y", 1), hit("a", "", 3), hit("b", "x", 1), hit("a", "", 4),
		hit("a", "x", 0), hit("a", "x", 1), // he has a slot already
		hit("a", "y", 2),
		hit("b", "x", -1), hit("b", "x", 1), // a release stays one
	}
	wantOf, wantCosts := []int{0, 1, 2, 3, 2, 0, 0, 1, 3, 3}, []int64{1, 2, 7, -1}
	for _, more := range []int{0, 20} {
		hits := slices.Clone(group)
		for i := range more {
			hits = append(hits, hit(fmt.Sprint("other", i), "x", 1))
		}
		merged, of := bucket.Merge(nil, nil, hits)
		if !slices.Equal(of[:len(group)], wantOf) {
			t.Errorf("beside %d others, hits became %v, want %v", more, of[:len(group)], wantOf)
		}
		for i, want := range wantCosts {
			if merged[i].Cost != want {
				t.Errorf("beside %d others, merged hit %d costs %d, want %d", more, i, merged[i].Cost, want)
			}
		}
		if len(merged) != len(wantCosts)+more {
			t.Errorf("beside %d others, %d hits are left", more, len(merged))
		}
	}
}
