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

	isOpen atomic.Bool // then the node is not to be asked anything

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

// refusal returns why the node should not be asked anything, or nil.
func (b *breaker) refusal() error {
	if b.isOpen.Load() {
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
	if b.isOpen.Load() || start.Before(b.counted) || b.ctx.Err() != nil {
		return
	}
	b.failures++
	b.counted = time.Now()
	if b.failures < failuresToOpen {
		return
	}
	b.isOpen.Store(true)
	b.changed(err)
	b.probing.Go(b.probeUntilAnswered)
}

func (b *breaker) probeUntilAnswered() {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for b.isOpen.Load() {
		select {
		case <-b.ctx.Done():
			return
		case <-tick.C:
			b.recordProbe(b.probe(b.ctx))
		}
	}
}

// recordProbe notes how a probe ended.
func (b *breaker) recordProbe(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !isDown(err) {
		b.failures, err = 0, nil
		b.isOpen.Store(false)
	} else if b.ctx.Err() != nil {
		return
	}
	b.changed(err)
}

// close ends the probing.
func (b *breaker) close() {
	b.mu.Lock()
	b.end()
	b.mu.Unlock()
	b.probing.Wait()
}
