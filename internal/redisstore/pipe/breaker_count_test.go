package pipe

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// A breaker that has closed counts from 0: one more failure does not open it.
func TestBreakerThatHasClosedCountsFailuresAnew(t *testing.T) {
	t.Parallel()
	away := errors.New("the node is away")
	opened := make(chan error, failuresToOpen)
	b := newBreaker(func(context.Context) error { return nil }, func(because error) {
		if because != nil {
			opened <- because
		}
	})
	defer b.close()
	for range failuresToOpen {
		b.record(time.Now(), away)
	}
	if err := <-opened; !errors.Is(err, away) {
		t.Fatalf("the breaker opened because of %v", err)
	}
	asynctest.Eventually(t, "a probe closes the breaker", func() bool { return !b.isOpen.Load() })
	for range failuresToOpen - 1 {
		b.record(time.Now(), away)
	}
	if b.isOpen.Load() || len(opened) > 0 {
		t.Error("a failure after it has closed opened the breaker")
	}
}

// Failures open the breaker only in a row: an answer in between shows that the node is
// there. Commands that were in flight at the same time fail once.
func TestAnswersBetweenFailuresKeepTheBreakerClosed(t *testing.T) {
	t.Parallel()
	away := errors.New("the node is away")
	b := newBreaker(func(context.Context) error { return nil }, func(error) {})
	defer b.close()
	start := time.Now()
	for range 3 {
		b.record(time.Now(), away)
		b.record(start, away)
		b.record(time.Now(), nil)
	}
	if b.isOpen.Load() {
		t.Error("failures with answers between them have opened the breaker")
	}
}
