package bucket_test

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

func TestWhatCannotBeCountedNamesWhatCan(t *testing.T) {
	for _, c := range []struct {
		spec bucket.Spec
		want string
	}{
		{
			bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 1e15, Period: 30 * day},
			"requests: found 1000000000000000 in 720h0m0s, which a token_bucket cannot count exactly; " +
				"allowed: at most 104249991374 requests, or a multiple of 43200, or a fixed_window, which counts every number",
		},
		{ // another period would do
			bucket.Spec{Algorithm: bucket.GCRA, Requests: 4_000_000_000_000, Period: time.Hour + time.Second},
			"requests: found 4000000000000 in 1h0m1s, which a gcra cannot count exactly; " +
				"allowed: at most 1250652493021 requests, or a multiple of 3601, or a period of 1h0m0s, or a fixed_window, which counts every number",
		},
		{
			bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 3e14 + 1, Period: 30 * day, Burst: 1e14},
			"burst: found 100000000000000 beside 300000000000001 requests in 720h0m0s, which a token_bucket cannot count exactly; " +
				"allowed: at most 104249991374 here, or a fixed_window, which counts every number",
		},
	} {
		t.Run(fmt.Sprintf("%+v", c.spec), func(t *testing.T) {
			if _, err := bucket.NewLimit(c.spec); err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

var (
	maxRequests = regexp.MustCompile(`at most (\d+) requests`)
	factor      = regexp.MustCompile(`a multiple of (\d+)`)
	maxBurst    = regexp.MustCompile(`at most (\d+) here`)
)

// FuzzExact: whatever the numbers, those that an error names are valid, and for a burst
// there is none above.
func FuzzExact(f *testing.F) {
	f.Add(int64(1e15), int64(30*24*3600*1000), int64(0))
	f.Add(int64(bucket.MaxRequests), int64(31_622_399_999), int64(0))
	f.Add(int64(bucket.MaxRequests-1), int64(31_622_399_998), int64(7e12))
	f.Add(int64(3e14+1), int64(60_000), int64(bucket.MaxRequests))
	f.Add(int64(1), int64(31_622_400_000), int64(2))
	f.Fuzz(func(t *testing.T, requests, ms, burst int64) {
		s := bucket.Spec{Algorithm: bucket.GCRA, Requests: requests, Period: time.Duration(ms) * time.Millisecond, Burst: burst}
		var wrong *bucket.SpecError
		_, err := bucket.NewLimit(s)
		if _, joined := err.(interface{ Unwrap() []error }); err == nil || joined || !errors.As(err, &wrong) {
			t.Skip()
		}
		allows := func(requests, burst int64) bool {
			other := s
			other.Requests, other.Burst = requests, burst
			_, err := bucket.NewLimit(other)
			return err == nil
		}
		named := func(pattern *regexp.Regexp) int64 {
			if m := pattern.FindStringSubmatch(wrong.Allowed); m != nil {
				n, _ := strconv.ParseInt(m[1], 10, 64)
				return n
			}
			return 0
		}
		if n := named(maxRequests); n > 0 && !allows(n, 0) {
			t.Errorf("%v: %d are refused", wrong, n)
		}
		if n := named(factor); n > 0 && !allows(requests-requests%n, 0) {
			t.Errorf("%v: %d are refused", wrong, requests-requests%n)
		}
		if n := named(maxBurst); n > 0 && (!allows(requests, n) || wrong.Field == "burst" && n+1 != requests && allows(requests, n+1)) {
			t.Errorf("%v: the largest burst is another", wrong)
		}
	})
}
