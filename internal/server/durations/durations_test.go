package durations_test

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/ratelimitd/ratelimitd/internal/server/durations"
)

var ends = []float64{.000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}

func libraryHistogram() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "x", Help: "X.", Buckets: ends, NativeHistogramBucketFactor: 1.1, NativeHistogramZeroThreshold: math.Exp2(-20),
	})
}

func written(t testing.TB, m prometheus.Metric) *dto.Histogram {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetHistogram()
}

// buckets returns the counts of the native buckets by their index.
func buckets(h *dto.Histogram) map[int32]int64 {
	found := make(map[int32]int64)
	at, n, i := int32(0), int64(0), 0
	for _, span := range h.GetPositiveSpan() {
		at += span.GetOffset()
		for range span.GetLength() {
			n += h.GetPositiveDelta()[i]
			i++
			if n != 0 {
				found[at] = n
			}
			at++
		}
	}
	return found
}

// edges are durations beside the ends of all buckets.
func edges() (all []time.Duration) {
	for i := -170; i <= 80; i++ {
		end := int64(math.Exp2(float64(i)/8) * 1e9)
		for d := int64(-1); d <= 2; d++ {
			all = append(all, time.Duration(end+d))
		}
	}
	for _, end := range ends {
		for d := -1; d <= 1; d++ {
			all = append(all, time.Duration(math.Round(end*1e9))+time.Duration(d))
		}
	}
	return append(all, 0, 1, 15, 16, 17)
}

// The library's histogram counts the same.
func TestCountsAreThoseOfTheLibrary(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	some := make([]time.Duration, 20_000)
	for i := range some {
		some[i] = time.Duration(math.Exp2(random.Float64() * 40))
	}
	for name, all := range map[string][]time.Duration{"none": nil, "one": {time.Millisecond}, "edges": edges(), "random": some} {
		ours, theirs := durations.New("x", "X.", "api").Histogram("grpc"), libraryHistogram()
		for _, d := range all {
			if d > 1024*time.Second {
				continue // where ours ends
			}
			ours.Observe(d)
			theirs.Observe(d.Seconds())
		}
		got, want := written(t, ours), written(t, theirs)
		if got.GetSampleCount() != want.GetSampleCount() || math.Abs(got.GetSampleSum()-want.GetSampleSum()) > 1e-6*want.GetSampleSum() {
			t.Errorf("%s: count %d sum %v, want %d and %v", name, got.GetSampleCount(), got.GetSampleSum(), want.GetSampleCount(), want.GetSampleSum())
		}
		if len(got.GetBucket()) != len(want.GetBucket()) {
			t.Fatalf("%s: %d classic buckets, want %d", name, len(got.GetBucket()), len(want.GetBucket()))
		}
		for i, b := range got.GetBucket() {
			if w := want.GetBucket()[i]; b.GetUpperBound() != w.GetUpperBound() || b.GetCumulativeCount() != w.GetCumulativeCount() {
				t.Errorf("%s: classic bucket %v, want %v", name, b, w)
			}
		}
		if got.GetSchema() != want.GetSchema() || got.GetZeroThreshold() != want.GetZeroThreshold() || got.GetZeroCount() != want.GetZeroCount() {
			t.Errorf("%s: schema %d zero %v %d, want %d, %v %d", name, got.GetSchema(), got.GetZeroThreshold(), got.GetZeroCount(),
				want.GetSchema(), want.GetZeroThreshold(), want.GetZeroCount())
		}
		ourBuckets, theirBuckets := buckets(got), buckets(want)
		for i, n := range theirBuckets {
			if ourBuckets[i] != n {
				t.Errorf("%s: native bucket %d has %d, want %d", name, i, ourBuckets[i], n)
			}
		}
		if len(ourBuckets) != len(theirBuckets) || len(got.GetPositiveSpan()) != len(want.GetPositiveSpan()) {
			t.Errorf("%s: %d buckets in %d spans, want %d in %d", name, len(ourBuckets), len(got.GetPositiveSpan()), len(theirBuckets), len(want.GetPositiveSpan()))
		}
	}
}

// What lasts longer than any bucket, or goes back, is counted too.
func TestEveryDurationIsCounted(t *testing.T) {
	t.Parallel()
	h := durations.New("x", "X.", "api").Histogram("grpc")
	for _, d := range []time.Duration{-time.Second, math.MinInt64, math.MaxInt64 / 4, time.Hour} {
		h.Observe(d)
	}
	if got := written(t, h); got.GetSampleCount() != 4 || got.GetZeroCount() != 2 || buckets(got)[80] != 2 {
		t.Errorf("got %v", got)
	}
}

func TestTracesStandBesideTheirBuckets(t *testing.T) {
	t.Parallel()
	h := durations.New("x", "X.", "api").Histogram("grpc")
	h.ObserveTraced(30*time.Microsecond, "a")
	h.ObserveTraced(40*time.Microsecond, "b")
	h.ObserveTraced(time.Second, "c")
	if got := written(t, h).GetBucket(); len(got) != len(ends) || got[1].GetExemplar().GetLabel()[0].GetValue() != "b" ||
		got[1].GetExemplar().GetValue() != .00004 || got[14].GetExemplar().GetLabel()[0].GetValue() != "c" || got[0].GetExemplar() != nil {
		t.Errorf("got %v", got)
	}
	h.ObserveTraced(time.Minute, "d")
	got := written(t, h).GetBucket()
	if last := got[len(got)-1]; !math.IsInf(last.GetUpperBound(), 1) || last.GetCumulativeCount() != 4 || last.GetExemplar().GetLabel()[0].GetName() != "trace_id" {
		t.Errorf("the last is %v", last)
	}
}

func TestNoDurationIsLost(t *testing.T) {
	t.Parallel()
	h := durations.New("x", "X.", "api").Histogram("grpc")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 10_000 {
				h.Observe(time.Duration(i) * time.Microsecond)
			}
		})
	}
	all.Wait()
	if got := written(t, h); got.GetSampleCount() != 40_000 || math.Abs(got.GetSampleSum()-4*49.995) > 1e-9 {
		t.Errorf("count %d, sum %v", got.GetSampleCount(), got.GetSampleSum())
	}
}

func TestObservingAllocatesNothing(t *testing.T) {
	h := durations.New("x", "X.", "api").Histogram("grpc")
	if n := testing.AllocsPerRun(100, func() { h.Observe(15 * time.Microsecond) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkObserve measures what a request's time costs: two readings of the clock, and
// a histogram, ours and the library's.
func BenchmarkObserve(b *testing.B) {
	made := time.Now()
	ours, theirs := durations.New("x", "X.", "api").Histogram("grpc"), libraryHistogram()
	took := func(i int) time.Duration { return time.Duration(10_000 + i%200*300) }
	b.Run("the clock, twice", func(b *testing.B) {
		for b.Loop() {
			began := time.Since(made)
			_ = time.Since(made) - began
		}
	})
	for _, h := range []struct {
		name    string
		observe func(time.Duration)
	}{
		{"ours", ours.Observe},
		{"the library's", func(d time.Duration) { theirs.Observe(d.Seconds()) }},
	} {
		b.Run(h.name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				h.observe(took(i))
			}
		})
		b.Run(h.name+" with the clock", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				began := time.Since(made)
				h.observe(time.Since(made) - began + took(i))
			}
		})
		b.Run(h.name+" in parallel", func(b *testing.B) {
			b.RunParallel(func(p *testing.PB) {
				for i := 0; p.Next(); i++ {
					h.observe(took(i))
				}
			})
		})
	}
}
