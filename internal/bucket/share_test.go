package bucket_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
)

func TestShareDividesRequestsAndBurst(t *testing.T) {
	for _, c := range []struct {
		name            string
		spec            bucket.Spec
		n               int
		requests, burst int64
	}{
		{"even", bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 100, Period: time.Minute, Burst: 20}, 4, 25, 5},
		{"rounded down", bucket.Spec{Algorithm: bucket.GCRA, Requests: 100, Period: time.Minute, Burst: 20}, 3, 33, 6},
		{"no burst named", bucket.Spec{Algorithm: bucket.LeakyBucket, Requests: 100, Period: time.Minute}, 8, 12, 12},
		{"at least 1", bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 3, Period: time.Minute, Burst: 9}, 100, 1, 1},
		{"a window", bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 10, Period: time.Minute}, 4, 2, 0},
		{"a window of few", bucket.Spec{Algorithm: bucket.SlidingWindow, Requests: 3, Period: time.Minute, SubWindows: 7}, 4, 1, 0},
		{"a log", bucket.Spec{Algorithm: bucket.SlidingLog, Requests: 1000, Period: time.Minute}, 3, 333, 0},
		{"nothing to share", bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 0, Period: time.Minute}, 4, 0, 0},
		{"a lease", bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 4, Period: time.Second, Lease: 100 * time.Millisecond}, 4, 1, 1}, // which has no room for one
		{"one daemon", bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 3, Period: time.Minute, Burst: 9}, 1, 3, 9},
		{"no daemon", bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 3, Period: time.Minute, Burst: 9}, 0, 3, 9},
		{"many daemons", bucket.Spec{Algorithm: bucket.FixedWindow, Requests: bucket.MaxRequests, Period: time.Minute}, math.MaxInt, 1, 0},
		// 122 x 3 days refill the whole; 1 in 122 days refills 3, not 9/2.
		{"refills within 366 days", bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 3, Period: 122 * day, Burst: 9}, 2, 1, 3},
		// In milliseconds a token of the whole is 8 units, one of the half 31,622,399,992.
		{"can be counted", bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 31_622_399_992 / 8, Period: bucket.MaxPeriod - 8*time.Millisecond}, 2, 1_976_399_999, 142_418},
		// A seventh of 60 x 2^46 an hour has no factor in common with 60 minutes.
		{"as many as can be counted", bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 60 << 46, Period: time.Hour}, 7, 603_160_664_379_977, 75_059_993_789_508},
		// A period of a prime number of milliseconds, and fewer requests than that.
		{"less burst rather than no requests", bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 31_622_399_971, Period: bucket.MaxPeriod - 29*time.Millisecond}, 10, 3_162_239_997, 142_418},
		// The half is a request a minute: a token is one unit, in minutes.
		{"cut no further than that", bucket.Spec{Algorithm: bucket.GCRA, Requests: 2 * 366 * 24 * 60, Period: bucket.MaxPeriod, Burst: 400_000}, 2, 366 * 24 * 60, 200_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			whole := buckettest.NewLimit(t, c.spec)
			part := whole.Share(c.n)
			if part.Requests != c.requests || part.Burst != c.burst {
				t.Errorf("got %d requests and a burst of %d, want %d and %d", part.Requests, part.Burst, c.requests, c.burst)
			}
			checkShare(t, whole, c.n)
		})
	}
}

// checkShare checks what Share promises of the share of one of n daemons.
func checkShare(t *testing.T, whole *bucket.Limit, n int) {
	t.Helper()
	part := whole.Share(n)
	if again, err := bucket.NewLimit(part.Spec); err != nil || again.Capacity != part.Capacity {
		t.Fatalf("%+v of %+v, one of %d, is no limit of its own: %v", part.Spec, whole.Spec, n, err)
	}
	same := part.Spec
	same.Requests, same.Burst, same.Lease = whole.Requests, whole.Burst, whole.Lease
	if same != whole.Spec || part != whole && part.Lease != 0 {
		t.Fatalf("%+v of %+v, one of %d, has a lease, or more changed than its requests and burst", part.Spec, whole.Spec, n)
	}
	if !bytes.Equal(part.AppendKey(nil, []byte("s")), whole.AppendKey(nil, []byte("s"))) {
		t.Fatalf("%+v of %+v, one of %d, has another key", part.Spec, whole.Spec, n)
	}
	n = max(1, n)
	for _, c := range []struct {
		what        string
		part, whole int64
	}{
		{"requests", part.Requests, whole.Requests},
		{"capacity", part.Capacity, whole.Capacity},
	} {
		if c.whole == 0 && c.part != 0 || c.whole > 0 && (c.part < 1 || c.part > max(1, c.whole/int64(n))) {
			t.Fatalf("%+v of %+v, one of %d: %s %d of %d", part.Spec, whole.Spec, n, c.what, c.part, c.whole)
		}
	}
}

// randomSpec makes up numbers of all sizes, near the bounds too. They need not
// be those of a limit.
func randomSpec(r *rand.Rand) bucket.Spec {
	size := func(maxSize int64) int64 {
		switch n := 1 + r.Int64N(maxSize); r.IntN(4) {
		case 0:
			return min(maxSize, 1+n>>r.IntN(40))
		case 1:
			return maxSize - min(maxSize-1, n>>r.IntN(40))
		case 2:
			return 1 + r.Int64N(min(maxSize, 20))
		default:
			return n
		}
	}
	algorithms := buckettest.Rates()
	s := bucket.Spec{
		Name:           [...]string{"", "a"}[r.IntN(2)],
		Algorithm:      algorithms[r.IntN(len(algorithms))],
		Requests:       size(bucket.MaxRequests),
		Period:         time.Duration(size(bucket.MaxPeriod.Milliseconds())) * time.Millisecond,
		Postpaid:       bucket.Postpaid(r.IntN(3)),
		OnStoreFailure: bucket.FailureMode(r.IntN(5)),
	}
	if r.IntN(2) == 0 { // a whole number of something
		whole := [...]time.Duration{time.Second, time.Minute, time.Hour, day}[r.IntN(4)]
		s.Period = max(whole, s.Period.Truncate(whole))
	}
	switch {
	case s.Algorithm == bucket.SlidingLog:
		s.Requests = size(bucket.MaxLogRequests)
	case s.Algorithm == bucket.SlidingWindow:
		s.SubWindows = r.Int64N(bucket.MaxSubWindows + 1)
	case s.Algorithm.IsBucket() && r.IntN(3) == 0: // just refills in time
		s.Burst = int64(min(float64(s.Requests)*float64(bucket.MaxPeriod)/float64(s.Period), 1<<32))
	case s.Algorithm.IsBucket():
		s.Burst = size(bucket.MaxRequests)
	}
	if r.IntN(50) == 0 {
		s.Requests, s.Burst = 0, 0
	}
	return s
}

func randomDaemons(r *rand.Rand) int {
	switch r.IntN(3) {
	case 0:
		return r.IntN(10)
	case 1:
		return r.IntN(1000)
	default:
		return 1 + r.IntN(math.MaxInt)>>r.IntN(60)
	}
}

// Every limit has a share for every number of daemons.
func TestEveryLimitHasShares(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	specs, limits := soaktest.Long(20_000, 1_000_000), 0
	for range specs {
		whole, err := bucket.NewLimit(randomSpec(r))
		if err != nil {
			continue
		}
		limits++
		for range 3 {
			checkShare(t, whole, randomDaemons(r))
		}
	}
	if limits < specs/4 {
		t.Errorf("only %d of the specs are limits", limits)
	}
}

// FuzzShare: the fuzzer chooses the numbers of a limit and the daemons.
func FuzzShare(f *testing.F) {
	f.Add(uint8(0), int64(3), int64(122*24*3600*1000), int64(9), 2)
	f.Add(uint8(1), int64(31_622_399_992/8), int64(31_622_399_992), int64(0), 2)
	f.Add(uint8(3), int64(bucket.MaxRequests), int64(1), int64(0), math.MaxInt)
	f.Fuzz(func(t *testing.T, a uint8, requests, ms, burst int64, n int) {
		algorithms := buckettest.Rates()
		s := bucket.Spec{
			Algorithm: algorithms[int(a)%len(algorithms)],
			Requests:  requests,
			Period:    time.Duration(ms) * time.Millisecond,
			Burst:     burst,
		}
		whole, err := bucket.NewLimit(s)
		if err != nil {
			t.Skip()
		}
		checkShare(t, whole, n)
	})
}

// A share is remembered for as long as the number of daemons stays.
func TestShareIsRemembered(t *testing.T) {
	l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 100, Period: time.Minute})
	if l.Share(1) != l {
		t.Error("the share of one daemon is not the limit itself")
	}
	half := l.Share(2)
	if l.Share(2) != half {
		t.Error("the share of the same number is another limit")
	}
	if n := testing.AllocsPerRun(100, func() { l.Share(2) }); n != 0 {
		t.Errorf("%v allocations to ask again", n)
	}
	if a, b, c := l.Share(2).Requests, l.Share(4).Requests, l.Share(2).Requests; a != 50 || b != 25 || c != 50 {
		t.Errorf("shares of 2, 4 and again 2 are %d, %d and %d", a, b, c)
	}
}
