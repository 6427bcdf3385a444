package bucket_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
)

// What the two newest spans hold counts until the later one ends, all of it and
// no longer; the older spans stay as they are.
func TestJoinNewest(t *testing.T) {
	const (
		start  = int64(1_800_000_000_000_000)
		second = int64(1_000_000)
	)
	for _, older := range [][]bucket.Span{
		nil,
		{stamp(start, 1)},
		{stamp(start, 1), stamp(start+second, 2)},
	} {
		s := bucket.State{Last: start + 30*second, Expires: start + 90*second, Level: 7}
		for _, span := range older {
			s.Level += span.Count
		}
		want := s
		s.Spans = append(append(s.Spans, older...),
			bucket.Span{First: start + 10*second, Last: start + 15*second, Count: 3},
			bucket.Span{First: start + 20*second, Last: start + 30*second, Count: 4})
		want.Spans = append(append(want.Spans, older...),
			bucket.Span{First: start + 10*second, Last: start + 30*second, Count: 7})
		s.JoinNewest()
		if !reflect.DeepEqual(s, want) {
			t.Errorf("after %d older spans: got %+v, want %+v", len(older), s, want)
		}
		l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.SlidingWindow, Requests: 20, Period: time.Minute})
		for _, c := range []struct{ at, remaining int64 }{
			{start + 89*second, 13}, // of the older ones nothing is left
			{start + 90*second, 20},
		} {
			if got := l.Decide(&s, c.at, bucket.Demand{}).Remaining; got != c.remaining {
				t.Errorf("after %d older spans: %d remain %d s after the start, want %d", len(older), got, (c.at-start)/second, c.remaining)
			}
		}
	}
}

func TestRetryTimesHaveAnOrder(t *testing.T) {
	ascending := []time.Duration{0, 1, time.Second, bucket.MaxPeriod, bucket.Unknown, bucket.Never}
	for i, a := range ascending {
		for j, b := range ascending {
			if got := bucket.IsLonger(a, b); got != (i > j) {
				t.Errorf("that %d is longer than %d: %v", a, b, got)
			}
		}
	}
}
