package main

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/integration/picture"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// The committed pictures are those that make plots draws.
func TestCommittedPicturesAreThoseDrawn(t *testing.T) {
	t.Parallel()
	drawn, err := pictures()
	if err != nil {
		t.Fatal(err)
	}
	if err := picture.Check("../../docs", drawn); err != nil {
		t.Errorf("make plots draws others: %v", err)
	}
}

// Each algorithm has a panel.
func TestAllAlgorithmsAreDrawn(t *testing.T) {
	t.Parallel()
	drawn := map[bucket.Algorithm]bool{bucket.GCRA: true} // beside token_bucket, see below
	for _, p := range plotted {
		drawn[p.spec.Algorithm] = true
	}
	for _, a := range bucket.Algorithms() {
		if !drawn[a] {
			t.Errorf("%s is not drawn", a)
		}
	}
}

// What shares a panel admits the same, and the notes of the panels hold.
func TestCurvesAreAsTheNotesSay(t *testing.T) {
	t.Parallel()
	of := func(a bucket.Algorithm) curves {
		c, err := admit(aMinute(a))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	bucketAdmits, gcraAdmits := of(bucket.TokenBucket).admitted, of(bucket.GCRA).admitted
	leaky := of(bucket.LeakyBucket)
	if len(bucketAdmits) != len(gcraAdmits) || len(bucketAdmits) != len(leaky.admitted) {
		t.Errorf("token_bucket admits %d, gcra %d, leaky_bucket %d", len(bucketAdmits), len(gcraAdmits), len(leaky.admitted))
	}
	for _, c := range []struct {
		name      string
		got, want int
	}{
		{name: "token_bucket in a minute", got: mostInAMinute(bucketAdmits), want: 2*capacity - 1},
		{name: "leaky_bucket, sent in a minute", got: mostInAMinute(leaky.sent), want: capacity},
		{name: "fixed_window in a minute", got: mostInAMinute(of(bucket.FixedWindow).admitted), want: 2 * capacity},
		{name: "sliding_window in a minute", got: mostInAMinute(of(bucket.SlidingWindow).admitted), want: capacity},
		{name: "sliding_log in a minute", got: mostInAMinute(of(bucket.SlidingLog).admitted), want: capacity},
		{name: "concurrency before the first ends", got: before(of(bucket.Concurrency).admitted, running), want: capacity},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.name, c.got, c.want)
		}
	}
}
