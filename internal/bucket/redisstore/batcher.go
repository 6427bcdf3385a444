package redisstore

import (
	"runtime"
	"sync"
	"time"
)

// batcher gathers what is asked of one node while a batch is on its way, and
// sends the next batch when that one is back ("group commit"). Nothing waits
// for a batch to fill: what is asked of an idle node leaves at once.
type batcher struct {
	bounds Batch
	// refusal is why nothing is to be sent now, nil if it is.
	refusal func() error

	mu       sync.Mutex
	waiting  []*part
	inFlight [][]*part // by worker: the batch that is on its way
	due      time.Time // no part's deadline is sooner
	idle     int       // workers that sleep
	resting  bool      // the watch does
	closed   bool

	wake, watchWake chan struct{}
	running         sync.WaitGroup
}

// newBatcher starts as many workers as batches may be on their way. Each takes
// batches to the function that newSend returns for it, which comes back when
// the parts are decided or have errors; end then is told of each part. While
// refusal has a reason, what waits is left for that instead.
func newBatcher(bounds Batch, newSend func() func([]*part), end func(*part), refusal func() error) *batcher {
	b := &batcher{
		bounds:    bounds,
		refusal:   refusal,
		inFlight:  make([][]*part, bounds.InFlight),
		wake:      make(chan struct{}, bounds.InFlight),
		watchWake: make(chan struct{}, 1),
	}
	for i := range bounds.InFlight {
		b.running.Go(func() { b.work(i, newSend(), end) })
	}
	b.running.Go(b.watch)
	return b
}

// submit queues a part, which will be over, or returns an error.
func (b *batcher) submit(p *part) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	if len(b.waiting) >= b.bounds.Queue && !b.sweep() {
		return errQueueFull
	}
	b.waiting = append(b.waiting, p)
	if p.deadline.Before(b.due) {
		b.due = p.deadline
	}
	if b.idle > 0 {
		b.idle--
		b.wake <- struct{}{}
	}
	if b.resting {
		b.resting = false
		b.watchWake <- struct{}{}
	}
	return nil
}

// sweep makes room in a full queue by removing the parts whose callers have
// gone. It reports false where that is not worth it: the oldest is waited for,
// and callers leave in about the order in which they came.
func (b *batcher) sweep() bool {
	if b.waiting[0].status.Load() != abandoned {
		return false
	}
	kept := b.waiting[:0]
	for _, p := range b.waiting {
		if p.status.Load() != abandoned {
			kept = append(kept, p)
		}
	}
	clear(b.waiting[len(kept):])
	b.waiting = kept
	return true
}

// close ends the workers once the queue is empty.
func (b *batcher) close() {
	b.mu.Lock()
	b.closed, b.idle, b.resting = true, 0, false
	b.mu.Unlock()
	close(b.wake)
	close(b.watchWake)
	b.running.Wait()
}

// length is how many parts wait.
func (b *batcher) length() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

func (b *batcher) work(worker int, send func([]*part), end func(*part)) {
	var batch []*part
	for b.waitForWork() {
		// Lets those join who are about to ask: on a hot key it halves the calls.
		runtime.Gosched()
		batch = b.drain(batch[:0], worker)
		if len(batch) > 0 {
			send(batch)
		}
		b.unwatch(worker)
		for i, p := range batch {
			batch[i] = nil
			end(p)
		}
	}
}

// unwatch takes a worker's batch from the watch: its parts may be used again
// as soon as they are over.
func (b *batcher) unwatch(worker int) {
	b.mu.Lock()
	b.inFlight[worker] = nil
	b.mu.Unlock()
}

// waitForWork reports false once the batcher is closed and empty.
func (b *batcher) waitForWork() bool {
	b.mu.Lock()
	if len(b.waiting) > 0 || b.closed {
		defer b.mu.Unlock()
		return len(b.waiting) > 0
	}
	b.idle++
	b.mu.Unlock()
	<-b.wake
	return true
}

// drain moves what fits into the batch of a worker from the queue, without
// those whose callers have gone, and nothing while there is a refusal.
func (b *batcher) drain(batch []*part, worker int) []*part {
	b.mu.Lock()
	defer b.mu.Unlock()
	refusal := b.refusal()
	n, hits := 0, 0
	for ; n < len(b.waiting); n++ {
		p := b.waiting[n]
		if refusal != nil {
			p.abandon(refusal)
			continue
		}
		if p.status.Load() == abandoned {
			continue
		}
		if hits > 0 && hits+len(p.Hits) > b.bounds.Size {
			break
		}
		if p.send() {
			hits += len(p.Hits)
			batch = append(batch, p)
		}
	}
	rest := copy(b.waiting, b.waiting[n:])
	clear(b.waiting[rest:])
	b.waiting = b.waiting[:rest]
	b.inFlight[worker] = batch
	return batch
}

const (
	// watchEvery is how often the watch looks whether a caller has no time
	// left. A timer for each would cost more than all that a batch costs a
	// caller.
	watchEvery = 2 * time.Millisecond
	// shortWait is a wait for which that is too coarse.
	shortWait = 8 * time.Millisecond
	// goneEvery is of how many of these looks one is also for callers that have
	// gone, who have to be asked one by one.
	goneEvery = 4
)

// watch ends the waits of callers in time, while there are any.
func (b *batcher) watch() {
	for n := 0; b.waitForWaits(); n++ {
		time.Sleep(watchEvery)
		b.expireDue(time.Now(), n%goneEvery == 0)
	}
}

// waitForWaits reports false once the batcher is closed and nobody waits.
func (b *batcher) waitForWaits() bool {
	b.mu.Lock()
	if len(b.waiting) > 0 || b.partsInFlight() > 0 || b.closed {
		defer b.mu.Unlock()
		return len(b.waiting) > 0 || b.partsInFlight() > 0
	}
	b.resting = true
	b.mu.Unlock()
	<-b.watchWake
	return true
}

// partsInFlight is how many parts are on their way.
func (b *batcher) partsInFlight() (n int) {
	for _, batch := range b.inFlight {
		n += len(batch)
	}
	return n
}

// look ends the waits of callers that have no time left or have gone, if it is
// time for either.
func (b *batcher) expireDue(now time.Time, gone bool) {
	const slack = watchEvery / 2
	b.mu.Lock()
	defer b.mu.Unlock()
	if !gone && b.due.Sub(now) > slack {
		return
	}
	b.due = now.Add(farOff)
	b.expire(b.waiting, now, slack)
	for _, batch := range b.inFlight {
		b.expire(batch, now, slack)
	}
}

// farOff is when a wait is due if there is none.
const farOff = 365 * 24 * time.Hour

// expire ends the waits of parts, and notes when the next may be due.
func (b *batcher) expire(parts []*part, now time.Time, slack time.Duration) {
	for _, p := range parts {
		p.expire(now, slack)
		if p.deadline.Before(b.due) && p.status.Load() != abandoned {
			b.due = p.deadline
		}
	}
}
