package main

import (
	"math"
	"math/bits"
	"time"
)

// histogram counts latencies in buckets that are at most 1/64 of their value
// wide, from subBuckets ns up to maxLatency; what is longer counts as that.
type histogram struct {
	buckets [maxBucket + 1]uint32
}

const (
	subBits    = 6
	subBuckets = 1 << subBits
	maxLatency = 1<<37 - 1 // ns, 137 s
	maxBucket  = (37-subBits)*subBuckets + subBuckets - 1
)

// bucketOf returns the bucket of a latency in ns.
func bucketOf(ns uint64) int {
	ns = min(ns, maxLatency)
	if ns < subBuckets {
		return int(ns)
	}
	shift := bits.Len64(ns) - 1 - subBits
	return (shift+1)<<subBits + int(ns>>shift) - subBuckets
}

// middleOf returns the middle of a bucket in ns.
func middleOf(bucket int) float64 {
	if bucket < subBuckets {
		return float64(bucket)
	}
	shift := bucket>>subBits - 1
	low := uint64(bucket&(subBuckets-1)+subBuckets) << shift
	return float64(low) + float64(uint64(1)<<shift)/2
}

func (h *histogram) record(d time.Duration) { h.buckets[bucketOf(uint64(max(0, d)))]++ }

func (h *histogram) add(other *histogram) {
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
}

// quantile returns the latency in us that the share q of all does not exceed,
// or NaN when there are none.
func (h *histogram) quantile(q float64) float64 {
	var all uint64
	for _, n := range h.buckets {
		all += uint64(n)
	}
	rank := uint64(math.Ceil(q * float64(all)))
	var seen uint64
	for i, n := range h.buckets {
		seen += uint64(n)
		if n > 0 && seen >= rank {
			return middleOf(i) / 1000
		}
	}
	return math.NaN()
}
