package bucket_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
)

func TestWhatCannotBeCountedNamesTheNearestNumbers(t *testing.T) {
	for _, c := range []struct {
		spec bucket.Spec
		want string
	}{
		{
			bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 1e15, Period: 30 * day},
			"requests: found 1000000000000000 in 720h0m0s, which a token_bucket cannot count exactly; " +
				"allowed: 999999999993600 requests, or 1000000000004400 requests, or a fixed_window, which counts every number",
		},
		{ // there is none above
			bucket.Spec{Algorithm: bucket.LeakyBucket, Requests: bucket.MaxRequests, Period: 30 * day},
			"requests: found 4503599627370496 in 720h0m0s, which a leaky_bucket cannot count exactly; " +
				"allowed: 4503599627356800 requests, or a fixed_window, which counts every number",
		},
		{ // another period would do
			bucket.Spec{Algorithm: bucket.GCRA, Requests: 4_000_000_000_000, Period: time.Hour + time.Second},
			"requests: found 4000000000000 in 1h0m1s, which a gcra cannot count exactly; " +
				"allowed: 3999999999996 requests, or 4000000000001 requests, or a period of 1h0m0s, or a fixed_window, which counts every number",
		},
		{
			bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 3e14 + 1, Period: 30 * day, Burst: 1e14},
			"burst: found 100000000000000 beside 300000000000001 requests in 720h0m0s, which a token_bucket cannot count exactly; " +
				"allowed: at most 104249991374 here, or 300000000000000 requests, or 300000000000240 requests, or a fixed_window, which counts every number",
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
	otherRequests = regexp.MustCompile(`(\d+) requests`)
	otherBurst    = regexp.MustCompile(`at most (\d+) here`)
)

// TestTheNearestNumbersAreTheNearest tries all that lie between the numbers of a bucket and
// those that its error names.
func TestTheNearestNumbersAreTheNearest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	n, refused, between := soaktest.Long(150, 1500), 0, 0
	for range n {
		s := bucket.Spec{Algorithm: bucket.TokenBucket, Requests: bucket.MaxRequests - r.Int64N(bucket.MaxRequests)>>r.IntN(12)}
		s.Period = time.Duration(1+r.Int64N(1500)) * [...]time.Duration{time.Millisecond, time.Second, time.Minute}[r.IntN(3)]
		if r.IntN(2) == 0 {
			s.Burst = 1 + r.Int64N(s.Requests)
		}
		var wrong *bucket.SpecError
		if _, err := bucket.NewLimit(s); err == nil {
			continue
		} else if !errors.As(err, &wrong) {
			t.Fatalf("%+v: %v", s, err)
		}
		refused++
		with := func(requests, burst int64) bool {
			other := s
			other.Requests, other.Burst = requests, burst
			_, err := bucket.NewLimit(other)
			return err == nil
		}
		if m := otherBurst.FindStringSubmatch(wrong.Allowed); (m != nil) != (s.Burst > 0) || m != nil && (!with(s.Requests, number(t, m)) || with(s.Requests, number(t, m)+1)) {
			t.Fatalf("%+v: the largest burst is another: %v", s, wrong)
		}
		lower, higher := int64(0), int64(0)
		for _, m := range otherRequests.FindAllStringSubmatch(wrong.Allowed, -1) {
			if n := number(t, m); n < s.Requests {
				lower = n
			} else {
				higher = n
			}
		}
		for n := s.Requests - 1; n >= 0 && n > s.Requests-700; n-- {
			if between++; with(n, s.Burst) != (n == lower) {
				t.Fatalf("%+v: is %d exact? %v", s, n, wrong)
			} else if n == lower {
				break
			}
		}
		for n := s.Requests + 1; n <= bucket.MaxRequests && n < s.Requests+700; n++ {
			if between++; with(n, s.Burst) != (n == higher) {
				t.Fatalf("%+v: is %d exact? %v", s, n, wrong)
			} else if n == higher {
				break
			}
		}
	}
	if refused < n/6 || between < 3*n {
		t.Errorf("only %d were refused, and %d others tried", refused, between)
	}
}

func number(t *testing.T, match []string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(match[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// FuzzExact: whatever the numbers, those that an error names are valid.
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
		for _, m := range otherRequests.FindAllStringSubmatch(wrong.Allowed, -1) {
			s.Requests = number(t, m)
			if _, err := bucket.NewLimit(s); err != nil {
				t.Errorf("%v: with %s: %v", wrong, m[0], err)
			}
		}
		s.Requests = requests
		if m := otherBurst.FindStringSubmatch(wrong.Allowed); m != nil && wrong.Field == "burst" {
			s.Burst = number(t, m)
			if _, err := bucket.NewLimit(s); err != nil {
				t.Errorf("%v: with %s: %v", wrong, m[0], err)
			}
		}
	})
}
