package bucket_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
)

const day = 24 * time.Hour

func TestNewLimitDerivesCapacityAndUnits(t *testing.T) {
	for _, c := range []struct {
		spec                          bucket.Spec
		capacity, quantum, unit, rate int64
	}{
		// 60,000,000 us for 10 tokens: 6,000,000 units each.
		{bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 10, Period: time.Minute, Burst: 20}, 20, 1, 6_000_000, 1},
		{bucket.Spec{Algorithm: bucket.GCRA, Requests: 3, Period: time.Second}, 3, 1, 1_000_000, 3},
		{bucket.Spec{Algorithm: bucket.LeakyBucket, Requests: 2000, Period: time.Millisecond}, 2000, 1, 1, 2},
		// 2^32-1 = 3 x 5 x 17 x 257 x 65537 and a second share 5: 200,000 us would do.
		{bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 1<<32 - 1, Period: time.Second}, 1<<32 - 1, 1, 200_000, 858_993_459},
		// 366 days are 31,622,400,000 ms = 15 x 2,108,160,000, too much for a burst of 2^32-1;
		// in seconds a token is 2,108,160 units, in minutes 527,040 / 15 = 35,136: 2^32 x 2^15.1.
		{bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 1<<32 - 1, Period: bucket.MaxPeriod}, 1<<32 - 1, 60_000_000, 35_136, 286_331_153},
		// 30 days are 2^14 x 3^4 x 5^9 us, of which 10^10 shares 2^10 x 5^9.
		{bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 10_000_000_000, Period: 30 * day}, 10_000_000_000, 1, 1296, 5},
		// 2^52 requests in a power of two of ticks, as a whole number of requests in each.
		{bucket.Spec{Algorithm: bucket.TokenBucket, Requests: bucket.MaxRequests, Period: time.Millisecond}, bucket.MaxRequests, 1000, 1, bucket.MaxRequests},
		{bucket.Spec{Algorithm: bucket.GCRA, Requests: bucket.MaxRequests, Period: 64 * time.Second}, bucket.MaxRequests, 1_000_000, 1, 1 << 46},
		{bucket.Spec{Algorithm: bucket.GCRA, Requests: 2, Period: time.Second, Burst: 63_244_800}, 63_244_800, 1, 500_000, 1},
		{bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 1, Period: bucket.MaxPeriod}, 1, 1, 31_622_400_000_000, 1},
		{bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 0, Period: time.Second}, 0, 1, 0, 0},
		{bucket.Spec{Algorithm: bucket.FixedWindow, Requests: bucket.MaxRequests, Period: bucket.MaxPeriod}, bucket.MaxRequests, 1, 0, 0},
	} {
		t.Run(fmt.Sprintf("%+v", c.spec), func(t *testing.T) {
			l, err := bucket.NewLimit(c.spec)
			if err != nil {
				t.Errorf("%+v: %v", c.spec, err)
				return
			}
			if l.Capacity != c.capacity || l.Quantum != c.quantum || l.Unit != c.unit || l.Rate != c.rate {
				t.Errorf("%+v: capacity %d, quantum %d, unit %d, rate %d, want %d, %d, %d, %d",
					c.spec, l.Capacity, l.Quantum, l.Unit, l.Rate, c.capacity, c.quantum, c.unit, c.rate)
			}
		})
	}
}

func TestNewLimitDerivesTheLengthOfSlots(t *testing.T) {
	for _, c := range []struct {
		algorithm      bucket.Algorithm
		period         time.Duration
		sub, wantSlots int64
	}{
		{bucket.SlidingWindow, time.Minute, 0, 6_000_000},
		{bucket.SlidingWindow, time.Minute, 60, 1_000_000},
		{bucket.SlidingWindow, time.Millisecond, 3, 334},
		{bucket.SlidingWindow, time.Second, 1, 1_000_000},
		{bucket.SlidingLog, time.Second, 0, 1},
	} {
		t.Run(fmt.Sprint(c.algorithm, " ", c.period, " ", c.sub), func(t *testing.T) {
			l := buckettest.NewLimit(t, bucket.Spec{Algorithm: c.algorithm, Requests: 1, Period: c.period, SubWindows: c.sub})
			if l.SlotMicros != c.wantSlots {
				t.Errorf("%+v: slots of %d us, want %d", l.Spec, l.SlotMicros, c.wantSlots)
			}
		})
	}
}

func TestNewLimitNamesEachBadField(t *testing.T) {
	good := bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 10, Period: time.Second}
	for _, c := range []struct {
		name   string
		change func(*bucket.Spec)
		fields []string
	}{
		{"no algorithm", func(s *bucket.Spec) { s.Algorithm = 0 }, []string{"algorithm"}},
		{"unknown algorithm", func(s *bucket.Spec) { s.Algorithm = 8 }, []string{"algorithm"}},
		{"negative requests", func(s *bucket.Spec) { s.Requests = -1 }, []string{"requests"}},
		{"too many requests", func(s *bucket.Spec) { s.Requests = bucket.MaxRequests + 1 }, []string{"requests"}},
		{"too many for a log", func(s *bucket.Spec) { s.Algorithm, s.Requests = bucket.SlidingLog, 1001 }, []string{"requests"}},
		{"too many holders", func(s *bucket.Spec) { s.Algorithm, s.Requests = bucket.Concurrency, 10_001 }, []string{"requests"}},
		{"a burst and sub_windows of holders", func(s *bucket.Spec) { s.Algorithm, s.Burst, s.SubWindows = bucket.Concurrency, 1, 1 }, []string{"burst", "sub_windows"}},
		{"postpaid holders", func(s *bucket.Spec) { s.Algorithm, s.Postpaid = bucket.Concurrency, bucket.PostpaidAuto }, []string{"postpaid"}},
		{"no period", func(s *bucket.Spec) { s.Period = 0 }, []string{"period"}},
		{"negative period", func(s *bucket.Spec) { s.Period = -time.Second }, []string{"period"}},
		{"period under a millisecond", func(s *bucket.Spec) { s.Period = time.Microsecond }, []string{"period"}},
		{"period of 1.5ms", func(s *bucket.Spec) { s.Period = 1500 * time.Microsecond }, []string{"period"}},
		{"too long a period", func(s *bucket.Spec) { s.Period = bucket.MaxPeriod + time.Millisecond }, []string{"period"}},
		{"negative burst", func(s *bucket.Spec) { s.Burst = -1 }, []string{"burst"}},
		{"too large a burst", func(s *bucket.Spec) { s.Burst = bucket.MaxRequests + 1 }, []string{"burst"}},
		{"a burst for over 366 days", func(s *bucket.Spec) { s.Requests, s.Period, s.Burst = 1, day, 367 }, []string{"burst"}},
		{"a burst for 732 days, in large numbers", func(s *bucket.Spec) {
			s.Requests, s.Period, s.Burst = 1<<31, bucket.MaxPeriod, 1<<32-1
		}, []string{"burst"}},
		{"a burst on a window", func(s *bucket.Spec) { s.Algorithm, s.Burst = bucket.FixedWindow, 1 }, []string{"burst"}},
		{"a burst beside no requests", func(s *bucket.Spec) { s.Requests, s.Burst = 0, 1 }, []string{"burst"}},
		{"sub_windows on a bucket", func(s *bucket.Spec) { s.SubWindows = 1 }, []string{"sub_windows"}},
		{"sub_windows on a log", func(s *bucket.Spec) { s.Algorithm, s.SubWindows = bucket.SlidingLog, 1 }, []string{"sub_windows"}},
		{"too many sub_windows", func(s *bucket.Spec) { s.Algorithm, s.SubWindows = bucket.SlidingWindow, 61 }, []string{"sub_windows"}},
		{"negative sub_windows", func(s *bucket.Spec) { s.Algorithm, s.SubWindows = bucket.SlidingWindow, -1 }, []string{"sub_windows"}},
		{"block_for on a leaky_bucket", func(s *bucket.Spec) { s.Algorithm, s.BlockFor = bucket.LeakyBucket, time.Minute }, []string{"block_for"}},
		{"block_for on a concurrency", func(s *bucket.Spec) { s.Algorithm, s.BlockFor = bucket.Concurrency, time.Minute }, []string{"block_for"}},
		{"block_for beside postpaid", func(s *bucket.Spec) { s.Postpaid, s.BlockFor = bucket.PostpaidAuto, time.Minute }, []string{"block_for"}},
		{"too short a block_for", func(s *bucket.Spec) { s.BlockFor = time.Second - time.Millisecond }, []string{"block_for"}},
		{"too long a block_for", func(s *bucket.Spec) { s.BlockFor = bucket.MaxBlockFor + time.Millisecond }, []string{"block_for"}},
		{"block_for of 1.0005s", func(s *bucket.Spec) { s.BlockFor = time.Second + 500*time.Microsecond }, []string{"block_for"}},
		{"what cannot be counted", func(s *bucket.Spec) { s.Requests, s.Period = 1<<32-1, 366*day-time.Millisecond }, []string{"requests"}},
		{"a burst that cannot be counted", func(s *bucket.Spec) {
			s.Requests, s.Period, s.Burst = 1<<32-1, 366*day-time.Millisecond, 1<<31
		}, []string{"burst"}},
		{"all at once", func(s *bucket.Spec) { *s = bucket.Spec{Requests: -1, Burst: -1, SubWindows: 99} },
			[]string{"algorithm", "requests", "period", "burst", "sub_windows"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := good
			c.change(&s)
			_, err := bucket.NewLimit(s)
			if got := fieldsOf(err); !slices.Equal(got, c.fields) {
				t.Errorf("%s: %+v: the error names %v, want %v: %v", c.name, s, got, c.fields, err)
			}
		})
	}
	for _, allowed := range []bucket.Spec{
		{Algorithm: bucket.TokenBucket, Requests: 1, Period: day, Burst: 366},
		{Algorithm: bucket.TokenBucket, Requests: 1 << 31, Period: 300 * day, Burst: 1 << 31},
		{Algorithm: bucket.FixedWindow, Requests: bucket.MaxRequests, Period: bucket.MaxPeriod - time.Millisecond},
		{Algorithm: bucket.SlidingWindow, Requests: bucket.MaxRequests, Period: bucket.MaxPeriod, SubWindows: 60},
		{Algorithm: bucket.TokenBucket, Requests: 1, Period: time.Millisecond, Burst: 31_622_400_000},
		{Algorithm: bucket.SlidingLog, Requests: 1000, Period: bucket.MinPeriod},
		{Algorithm: bucket.SlidingWindow, Requests: 1, Period: bucket.MinPeriod, SubWindows: 60},
	} {
		t.Run(fmt.Sprintf("%+v", allowed), func(t *testing.T) {
			buckettest.NewLimit(t, allowed)
		})
	}
}

func TestPeriodLimitsHaveKeysOfTheirOwn(t *testing.T) {
	for _, c := range []struct {
		spec bucket.Spec
		want string
	}{
		{bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 5, Period: time.Minute}, "s#fixed_window#60000"},
		{bucket.Spec{Name: "n#1", Algorithm: bucket.TokenBucket, Requests: 5, Period: bucket.MaxPeriod}, "s#token_bucket:n%231#31622400000"},
		{bucket.Spec{Algorithm: bucket.GCRA, Requests: 0, Period: time.Millisecond}, "s#gcra#1"},
	} {
		t.Run(c.want, func(t *testing.T) {
			l := mustPeriodLimit(t, c.spec)
			if l.Spec != buckettest.NewLimit(t, c.spec).Spec {
				t.Errorf("the limit of %+v is %+v", c.spec, l.Spec)
			}
			for _, l := range []*bucket.Limit{l, l.Share(3)} {
				if got := string(l.AppendKey(nil, []byte("s"))); got != c.want {
					t.Errorf("%+v: key %s, want %s", c.spec, got, c.want)
				}
			}
		})
	}
	if _, err := bucket.NewPeriodLimit(bucket.Spec{Algorithm: bucket.SlidingLog, Requests: 1001, Period: time.Second}); !slices.Equal(fieldsOf(err), []string{"requests"}) {
		t.Errorf("1001 requests of a log: %v", err)
	}
}

// The key of a long subject is shortened, and no short subject has the same key.
func TestShortenedKeysAreNobodysOwn(t *testing.T) {
	l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 5, Period: time.Minute})
	keyOf := func(value string) string {
		return string(l.AppendKey(nil, bucket.AppendSubject(nil, "d", []bucket.Entry{{Key: "k", Value: value}})))
	}
	shortened := keyOf(strings.Repeat("x", 2*bucket.MaxKey))
	value := strings.TrimSuffix(strings.TrimPrefix(shortened, "d|k="), "#gcra")
	if len(shortened) != bucket.MaxKey || len(value) != bucket.MaxKey-len("d|k=#gcra") {
		t.Fatalf("the key of a long subject is %s", shortened)
	}
	if got := keyOf(value); got == shortened {
		t.Errorf("the value %s has the key of another, %s", value, got)
	}
}

// However much a postpaid bucket is charged, and however slowly it drains, it
// is full again after ten times the longest period.
func TestDebtsEnd(t *testing.T) {
	const clock = int64(1_800_000_000_000_000)
	for _, a := range []bucket.Algorithm{bucket.TokenBucket, bucket.GCRA, bucket.LeakyBucket} {
		l := buckettest.NewLimit(t, bucket.Spec{Algorithm: a, Requests: 1, Period: time.Second, Postpaid: bucket.PostpaidAlways})
		var s bucket.State
		for range 3 {
			d := l.Charge(&s, clock, bucket.Demand{Cost: bucket.MaxCost}, l.Decide(&s, clock, bucket.Demand{Cost: bucket.MaxCost}))
			if d.ResetAfter != 10*bucket.MaxPeriod {
				t.Errorf("%s: charged with all there is, it is full after %s, want %s", a, d.ResetAfter, 10*bucket.MaxPeriod)
			}
		}
	}
}

// fieldsOf returns the fields that an error of NewLimit names.
func fieldsOf(err error) (fields []string) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			fields = append(fields, fieldsOf(e)...)
		}
		return fields
	}
	var spec *bucket.SpecError
	if errors.As(err, &spec) {
		fields = append(fields, spec.Field)
	}
	return fields
}

// TestDerivedNumbersAreExact checks that the numbers of random buckets are exact, in
// lowest terms, under the bounds, and of the finest quantum.
func TestDerivedNumbersAreExact(t *testing.T) {
	const maxLevel = int64(1) << 52
	r := rand.New(rand.NewPCG(1, 2))
	refused := 0
	specs := soaktest.Long(10_000, 500_000)
	for range specs {
		s := bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 1 + logarithmic(r, bucket.MaxRequests-1)}
		whole := []time.Duration{time.Millisecond, time.Second, time.Minute}[r.IntN(3)]
		s.Period = max(whole, time.Duration(logarithmic(r, int64(bucket.MaxPeriod))).Truncate(whole))
		fill := new(big.Int).Mul(big.NewInt(s.Requests), big.NewInt(int64(bucket.MaxPeriod)))
		fill.Quo(fill, big.NewInt(int64(s.Period))) // the largest burst
		if !fill.IsInt64() || fill.Int64() > bucket.MaxRequests {
			fill.SetInt64(bucket.MaxRequests)
		}
		s.Burst = 1 + logarithmic(r, fill.Int64()-1)
		if r.IntN(2) == 0 {
			s.Burst = 0
		}

		// units is how many units a token has on a quantum, and whether all
		// that the bucket holds can be counted.
		units := func(quantum int64) (n int64, fits bool) {
			perPeriod := new(big.Int).Mul(big.NewInt(s.Requests), big.NewInt(quantum))
			n = new(big.Rat).SetFrac(perPeriod, big.NewInt(s.Period.Microseconds())).Denom().Int64()
			full := new(big.Int).Mul(big.NewInt(n), big.NewInt(cmp.Or(s.Burst, s.Requests)))
			return n, full.Cmp(big.NewInt(maxLevel)) <= 0
		}
		want := int64(0)
		for _, q := range []int64{60e6, 1e6, 1e3, 1} {
			if _, fits := units(q); s.Period.Microseconds()%q == 0 && fits {
				want = q
			}
		}

		l, err := bucket.NewLimit(s)
		if err != nil {
			field := "requests"
			if s.Burst != 0 {
				field = "burst"
			}
			if got := fieldsOf(err); want != 0 || !slices.Equal(got, []string{field}) {
				t.Fatalf("%+v: %v; a quantum of %d us would do", s, err, want)
			}
			refused++
			continue
		}
		unit, _ := units(l.Quantum)
		switch {
		case l.Quantum != want:
			t.Fatalf("%+v: quantum %d, want the finest, %d", s, l.Quantum, want)
		case l.Unit != unit:
			t.Fatalf("%+v: unit %d, want %d", s, l.Unit, unit)
		case big.NewRat(l.Unit, l.Rate).Cmp(big.NewRat(s.Period.Microseconds()/l.Quantum, s.Requests)) != 0:
			t.Fatalf("%+v: unit %d / rate %d is not period / requests", s, l.Unit, l.Rate)
		case l.MaxDebt < l.Burst*l.Unit || l.Rate < 1 || l.MaxDebt > maxLevel:
			t.Fatalf("%+v: debts up to %d, want %d to 2^52", s, l.MaxDebt, l.Burst*l.Unit)
		}
		// The longest wait, from a clock in the year 2096, is exact in a double.
		drain := (l.MaxDebt + l.Rate - 1) / l.Rate
		if end := new(big.Int).Mul(big.NewInt(drain), big.NewInt(l.Quantum)); end.Cmp(big.NewInt(1<<53-4e15)) >= 0 {
			t.Fatalf("%+v: the highest debt lasts %s us", s, end)
		}
	}
	if refused == 0 || refused > specs/2 {
		t.Errorf("%d of %d were refused: the test looks at too little", refused, specs)
	}
}

// logarithmic returns 0 to maxN, of each length in bits alike.
func logarithmic(r *rand.Rand, maxN int64) int64 {
	n := int64(1)
	for n < maxN && r.IntN(1+big.NewInt(maxN).BitLen()) != 0 {
		n *= 2
	}
	return min(maxN, r.Int64N(n+1))
}
