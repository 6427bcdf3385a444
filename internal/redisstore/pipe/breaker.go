package pipe

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// failuresToOpen is how many commands in a row must fail (see isDown). A single
	// one may just be slow. Commands that were in flight at the same time count
	// as one.
	failuresToOpen = 2
	// probeEvery is how often an open breaker asks the node.
	probeEvery = 100 * time.Millisecond
)

// breaker keeps callers from waiting for a node that does not answer. It opens
// after failures in a row; then it probes the node until that answers, and
// closes.
type breaker struct {
	// probe asks the node; ctx ends it. It closes the breaker if it returns nil, or an
	// error that would not have opened it.
	probe func(ctx context.Context) error
	// changed is called with an error when the breaker opens, and at each failed probe
	// while it is open; and with nil when it closes.
	changed func(because error)

	open atomic.Bool

	mu       sync.Mutex
	failures int
	counted  time.Time // when failures last grew

	ctx     context.Context // ends the probing
	end     context.CancelFunc
	probing sync.WaitGroup
}

func newBreaker(probe func(context.Context) error, changed func(because error)) *breaker {
	b := &breaker{probe: probe, changed: changed}
	b.ctx, b.end = context.WithCancel(context.Background())
	return b
}

// isOpen reports whether the node should not be asked anything.
func (b *breaker) isOpen() bool { return b.open.Load() }

// refusal returns why the node should not be asked anything, or nil.
func (b *breaker) refusal() error {
	if b.isOpen() {
		return ErrBreakerOpen
	}
	return nil
}

// record notes how a command that was sent at start ended.
func (b *breaker) record(start time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !isDown(err) {
		b.failures = 0
		return
	}
	if b.open.Load() || start.Before(b.counted) || b.ctx.Err() != nil {
		return
	}
	b.failures++
	b.counted = time.Now()
	if b.failures < failuresToOpen {
		return
	}
	b.open.Store(true)
	b.changed(err)
	b.probing.Go(b.probeUntilAnswered)
}

func (b *breaker) probeUntilAnswered() {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-tick.C:
		}
		err := b.probe(b.ctx)
		if !isDown(err) {
			break
		}
		b.stayedOpen(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = 0
	b.open.Store(false)
	b.changed(nil)
}

func (b *breaker) stayedOpen(because error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() == nil {
		b.changed(because)
	}
}

// close ends the probing.
func (b *breaker) close() {
	b.mu.Lock()
	b.end()
	b.mu.Unlock()
	b.probing.Wait()
}
