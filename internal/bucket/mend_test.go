package bucket_test

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
)

const skew = int64(10_000_000)

// stamp is a span of one moment.
func stamp(at, count int64) bucket.Span { return bucket.Span{First: at, Last: at, Count: count} }

func TestMendMovesOnlyStatesOfAWrongClock(t *testing.T) {
	const (
		clock  = int64(1_800_000_000_000_000) // a full hour
		second = int64(1_000_000)
		ahead  = clock + 86_400*second
	)
	minute := func(a bucket.Algorithm) bucket.Spec {
		return bucket.Spec{Algorithm: a, Requests: 10, Period: time.Minute}
	}
	// A quantum of a minute.
	coarse := bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 1<<32 - 1, Period: bucket.MaxPeriod}
	for _, c := range []struct {
		name  string
		spec  bucket.Spec
		state bucket.State
		want  *bucket.State // nil: as it is
	}{
		{"nothing", minute(bucket.TokenBucket), bucket.State{}, nil},
		{"a bucket of the past", minute(bucket.TokenBucket), bucket.State{Last: clock - second, Expires: clock + 59*second, Level: 5, Unit: 6_000_000}, nil},
		{"a bucket as far ahead as may be", minute(bucket.GCRA), bucket.State{Last: clock + skew, Expires: clock + 60*second, Level: 5, Unit: 6_000_000}, nil},
		{
			"a bucket ahead", minute(bucket.TokenBucket),
			bucket.State{Last: ahead, Expires: ahead + 30*second, Level: 5, Unit: 6_000_000},
			&bucket.State{Last: clock, Expires: clock + 30*second, Level: 5, Unit: 6_000_000},
		},
		{
			"a bucket a little too far ahead, of other numbers", minute(bucket.LeakyBucket),
			bucket.State{Last: clock + skew + 1, Expires: clock + skew + 7, Level: 3, Unit: 17},
			&bucket.State{Last: clock, Expires: clock + 6, Level: 3, Unit: 17},
		},
		{"a bucket's last moment that new numbers rounded up", coarse, bucket.State{Last: clock + 60*second, Expires: clock + 120*second, Level: 5, Unit: 35_136}, nil},
		{"one that they would round up", coarse, bucket.State{Last: clock + 60*second - 1, Expires: clock + 120*second, Level: 5, Unit: 35_136}, nil},
		{
			"one that is later than that", coarse,
			bucket.State{Last: clock + 60*second + 1, Expires: clock + 120*second, Level: 5, Unit: 35_136},
			&bucket.State{Last: clock, Expires: clock + 60*second - 1, Level: 5, Unit: 35_136},
		},
		{"a bucket of a limit that denies always", bucket.Spec{Algorithm: bucket.TokenBucket, Period: time.Minute}, bucket.State{Last: ahead, Expires: ahead + 1, Level: 5, Unit: 2}, nil},
		{"a window as far ahead as may be", minute(bucket.FixedWindow), bucket.State{Last: clock + skew, Expires: clock + 60*second, Level: 5}, nil},
		{
			"a window ahead", minute(bucket.FixedWindow),
			bucket.State{Last: ahead + second, Expires: ahead + 2*second, Level: 5},
			&bucket.State{Last: clock, Expires: clock + 60*second, Level: 5},
		},
		{"a log as far ahead as may be", minute(bucket.SlidingLog), bucket.State{Last: clock + skew, Expires: clock + 60*second, Level: 5, Spans: []bucket.Span{stamp(clock, 5)}}, nil},
		{
			"a log ahead", minute(bucket.SlidingLog),
			bucket.State{Last: ahead + second, Expires: ahead + 60*second, Level: 6, Spans: []bucket.Span{stamp(clock-2, 1), stamp(ahead-1, 2), stamp(ahead, 3)}},
			&bucket.State{Last: clock, Expires: clock + 60*second, Level: 6, Spans: []bucket.Span{stamp(clock-2, 1), stamp(clock, 2), stamp(clock, 3)}},
		},
		{
			"a slot that begins in the past", minute(bucket.SlidingWindow),
			bucket.State{Last: clock + 20*second, Expires: clock + 75*second, Level: 6, Spans: []bucket.Span{stamp(clock-8, 1), {First: clock - 7, Last: clock + 15*second, Count: 5}}},
			&bucket.State{Last: clock, Expires: clock + 60*second, Level: 6, Spans: []bucket.Span{stamp(clock-8, 1), {First: clock - 7, Last: clock, Count: 5}}},
		},
		{
			"spans of the past that a refund was taken from ahead", minute(bucket.SlidingWindow),
			bucket.State{Last: clock + 20*second, Expires: clock + 30*second, Level: 6, Spans: []bucket.Span{stamp(clock-30*second, 6)}},
			&bucket.State{Last: clock, Expires: clock + 30*second, Level: 6, Spans: []bucket.Span{stamp(clock-30*second, 6)}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := buckettest.NewLimit(t, c.spec)
			want, s := c.want, c.state
			if want == nil {
				before := c.state
				want = &before
			}
			if got := l.Mend(&s, clock, skew); got != (c.want != nil) || !reflect.DeepEqual(s, *want) {
				t.Errorf("got %v and %+v, want %+v", got, s, *want)
			}
			if l.Mend(&s, clock, skew) {
				t.Error("it is mended twice")
			}
			l.Charge(&s, clock, bucket.Demand{Cost: 1}, l.Decide(&s, clock, bucket.Demand{Cost: 1}))
			if l.Mend(&s, clock, skew) {
				t.Errorf("it is mended again when it was charged: %+v", s)
			}
		})
	}
}

// TestDecisionsFollowFromTheHistoryWhenTheClockSteps decides each hit from the list of
// all hits, as TestDecisionsFollowFromTheHistory does, on a clock that jumps ahead and
// comes back: then it changes the list as Mend promises.
func TestDecisionsFollowFromTheHistoryWhenTheClockSteps(t *testing.T) {
	for _, a := range buckettest.Rates() {
		t.Run(a.String(), func(t *testing.T) {
			mended := 0
			for seed := range uint64(soaktest.Long(20, 500)) {
				r := rand.New(rand.NewPCG(seed, 1))
				spec := bucket.Spec{Algorithm: a, Requests: 1 + r.Int64N(9), Period: time.Duration(1+r.IntN(60)) * time.Second}
				if a.IsBucket() {
					spec.Burst = 1 + r.Int64N(9)
				}
				mended += replaySteps(t, buckettest.NewLimit(t, spec), r)
			}
			if mended < soaktest.Long(20, 500) {
				t.Errorf("only %d states were mended: the test looks at too little", mended)
			}
		})
	}
}

// replaySteps returns how often the state was mended.
func replaySteps(t *testing.T, l *bucket.Limit, r *rand.Rand) (mended int) {
	var s bucket.State
	// What certainly counts at the last write, and what may: a sliding window's
	// slot may count a hit for longer than a period.
	var sure, maybe []passed
	last, right := int64(0), int64(0)
	clock := int64(1_800_000_000_000_000)
	for range 80 {
		switch {
		case right == 0 && r.IntN(8) == 0:
			right = clock
			clock += []int64{skew, skew + 1, 2 * skew, 5 * skew, 8640 * skew}[r.IntN(5)]
		case right != 0 && r.IntN(4) == 0:
			clock, right = right+r.Int64N(1_000_000), 0
		default:
			clock += r.Int64N(2 * l.PeriodMicros / l.Requests)
		}
		if last > clock+skew {
			sure, maybe = cameBack(l, sure, last, clock), cameBack(l, maybe, last, clock)
			last = clock
		}
		if l.Mend(&s, clock, skew) {
			mended++
		}
		now := max(clock, last)
		cost := 1 + r.Int64N(min(3, l.Capacity))
		d := l.Decide(&s, clock, bucket.Demand{Cost: cost})
		must, _ := fits(l, maybe, now, cost)
		_, may := fits(l, sure, now, cost)
		if d.Allowed() && !may || !d.Allowed() && must {
			t.Fatalf("%+v: cost %d at %d: allowed %v after %v", l.Spec, cost, now, d.Allowed(), sure)
		}
		if wait := d.RetryAfter.Microseconds(); !d.Allowed() {
			if l.Decide(&s, clock+wait-1, bucket.Demand{Cost: cost}).Allowed() || !l.Decide(&s, clock+wait, bucket.Demand{Cost: cost}).Allowed() {
				t.Fatalf("%+v: cost %d at %d: %d us is not the first moment at which it passes", l.Spec, cost, now, wait)
			}
			continue
		}
		l.Charge(&s, clock, bucket.Demand{Cost: cost}, d)
		last = now
		sure = append(counting(l, sure, now, 0), passed{now, cost})
		maybe = append(counting(l, maybe, now, max(0, l.SlotMicros-1)), passed{now, cost})
	}
	var admitted buckettest.Admitted
	for _, p := range sure {
		admitted.Add(p.at, p.cost)
	}
	if err := admitted.Exceeds(l); err != nil {
		t.Fatal(err)
	}
	return mended
}

// cameBack is a history for a clock that came back from last.
func cameBack(l *bucket.Limit, history []passed, last, clock int64) (moved []passed) {
	for _, p := range history {
		if l.Algorithm.IsBucket() {
			p.at -= last - clock // as long ago as it was
		} else {
			p.at = min(p.at, clock)
		}
		moved = append(moved, p)
	}
	return moved
}

// counting is what of a history a write at now keeps, where hits of a sliding
// window are kept for longer than a period.
func counting(l *bucket.Limit, history []passed, now, longer int64) (kept []passed) {
	for _, p := range history {
		switch l.Algorithm {
		case bucket.FixedWindow:
			if p.at < now-now%l.PeriodMicros {
				continue
			}
		case bucket.SlidingWindow, bucket.SlidingLog:
			if p.at <= now-l.PeriodMicros-longer {
				continue
			}
		}
		kept = append(kept, p)
	}
	return kept
}
