package durations

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Histogram counts durations. Its methods may be called concurrently.
type Histogram struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair
	since  time.Time

	counts [maxCells]atomic.Uint64
	sum    atomic.Int64 // in nanoseconds; it holds 292 years
	// traced has the last traced duration of each classic bucket, and beyond all.
	traced [len(classic) + 1]atomic.Pointer[traced]
}

// traced is a duration whose request has a trace.
type traced struct {
	took time.Duration
	id   string
	at   time.Time
}

// Observe counts a duration.
func (h *Histogram) Observe(took time.Duration) { h.ObserveMany(took, 1) }

// ObserveMany counts the duration of n requests that ended together. It returns the index of
// its cell.
func (h *Histogram) ObserveMany(took time.Duration, n int) (cell int) {
	cell = cellOf(took)
	h.counts[cell].Add(uint64(n))
	h.sum.Add(int64(took) * int64(n))
	return cell
}

// ObserveTraced counts a duration, and keeps the ID of its trace beside it.
func (h *Histogram) ObserveTraced(took time.Duration, id string) {
	at := h.ObserveMany(took, 1)
	h.traced[cells[at].classic].Store(&traced{took: took, id: id, at: time.Now()})
}

// Desc implements prometheus.Metric.
func (h *Histogram) Desc() *prometheus.Desc { return h.desc }

// Write implements prometheus.Metric.
func (h *Histogram) Write(out *dto.Metric) error {
	var inClassic [len(classic) + 1]uint64
	var native [lastNative - firstNative + 2]uint64 // the zero bucket is the first
	count := uint64(0)
	for i := range cells {
		n := h.counts[i].Load()
		count += n
		inClassic[cells[i].classic] += n
		native[cells[i].native-firstNative+1] += n
	}
	m := &dto.Histogram{
		SampleCount:      &count,
		SampleSum:        proto.Float64(time.Duration(h.sum.Load()).Seconds()),
		CreatedTimestamp: timestamppb.New(h.since),
		Schema:           proto.Int32(schema),
		ZeroThreshold:    proto.Float64(zeroThreshold),
		ZeroCount:        &native[0],
		Bucket:           h.classicBuckets(&inClassic),
	}
	m.PositiveSpan, m.PositiveDelta = spans(native[1:])
	out.Label, out.Histogram = h.labels, m
	return nil
}

// classicBuckets returns those with their cumulated counts and traces. The last, which
// ends nowhere, is there only for a trace: it has the count of all. counts become the
// cumulated ones.
func (h *Histogram) classicBuckets(counts *[len(classic) + 1]uint64) []*dto.Bucket {
	all := new([len(classic) + 1]dto.Bucket)
	shown := make([]*dto.Bucket, 0, len(all))
	for i := range all {
		if i > 0 {
			counts[i] += counts[i-1]
		}
		b := &all[i]
		b.CumulativeCount, b.UpperBound, b.Exemplar = &counts[i], &classicSeconds[i], h.traced[i].Load().exemplar()
		if i < len(classic) || b.Exemplar != nil {
			shown = append(shown, b)
		}
	}
	return shown
}

// exemplar returns what is shown of it, or nil if there is none.
func (t *traced) exemplar() *dto.Exemplar {
	if t == nil {
		return nil
	}
	return &dto.Exemplar{
		Label:     []*dto.LabelPair{{Name: proto.String("trace_id"), Value: proto.String(t.id)}},
		Value:     proto.Float64(t.took.Seconds()),
		Timestamp: timestamppb.New(t.at),
	}
}

// spans returns the native buckets, from firstNative on, that counted anything: runs of
// them, and the difference of each count to the one before it. Gaps of up to two empty
// ones are cheaper within a run.
func spans(counts []uint64) (all []*dto.BucketSpan, deltas []int64) {
	const maxGap = 2
	before, next := int64(0), 0 // the count of the last bucket, and the place after it
	for i, n := range counts {
		if n == 0 {
			continue
		}
		gap := i - next
		if len(all) == 0 || gap > maxGap {
			offset := gap
			if len(all) == 0 {
				offset += firstNative
			}
			all = append(all, &dto.BucketSpan{Offset: proto.Int32(int32(offset)), Length: proto.Uint32(0)})
			gap = 0
		}
		for range gap {
			deltas = append(deltas, -before)
			before = 0
		}
		deltas = append(deltas, int64(n)-before)
		before, next = int64(n), i+1
		*all[len(all)-1].Length += uint32(gap + 1)
	}
	return all, deltas
}
