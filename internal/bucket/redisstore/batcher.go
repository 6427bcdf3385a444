package redisstore

import (
	"runtime"
	"sync"
	"time"
)

// batcher gathers parts for one node while a batch is in flight, and sends them
// as the next batch when that one is back, as the group commit of a database
// does. No part waits for a batch to fill: an idle node is sent a part at once.
type batcher struct {
	bounds Batch
	// refusal returns why nothing may be sent now, or nil.
	refusal func() error

	mu       sync.Mutex
	waiting  []*part
	inFlight [][]*part // by worker: its batch
	due      time.Time // no part's deadline is sooner
	idle     int       // workers that sleep
	resting  bool      // whether the watch sleeps
	closed   bool

	wake, watchWake chan struct{}
	running         sync.WaitGroup
}

// newBatcher starts a worker for each batch that may be in flight. A worker sends
// its batches by the function that newSend returned for it, which returns when
// the parts are decided or have errors; then it calls end for each part. While
// refusal returns an error, parts are abandoned with that instead of sent.
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

// submit queues a part, which will be done one day, or returns an error. A part
// that finds the queue full fails at once.
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

// sweep removes abandoned parts from a full queue. It looks no further, and
// reports false, if the oldest part is not abandoned: parts are abandoned in about
// the order in which they came.
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
		// Lets callers that are about to ask join the batch: on a hot key this
		// halves the commands.
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

// unwatch hides a worker's batch from the watch, since the callers of its parts
// may use them again once they are done.
func (b *batcher) unwatch(worker int) {
	b.mu.Lock()
	b.inFlight[worker] = nil
	b.mu.Unlock()
}

// waitForWork waits until there are parts in the queue. It reports false once the
// batcher is closed and the queue is empty.
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

// drain moves the parts that fit from the queue into the batch of a worker. It
// skips parts whose callers have gone, and moves none while there is a refusal.
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
	// watchEvery is how often the watch looks for callers that have no time
	// left. A timer for each caller would cost more than its share of a batch.
	watchEvery = 2 * time.Millisecond
	// shortWait is the wait below which the watch is too coarse, so that the
	// caller has a timer of its own.
	shortWait = 8 * time.Millisecond
	// goneEvery is after how many looks the watch also looks for callers that
	// have gone: it has to look at the context of each.
	goneEvery = 4
)

// watch abandons parts whose callers have no time left, or have gone, while there
// are parts.
func (b *batcher) watch() {
	for n := 0; b.waitForWaits(); n++ {
		time.Sleep(watchEvery)
		b.expireDue(time.Now(), n%goneEvery == 0)
	}
}

// waitForWaits waits until a caller waits for a part. It reports false once the
// batcher is closed and no caller waits.
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

// partsInFlight is how many parts are in flight. b.mu is held.
func (b *batcher) partsInFlight() (n int) {
	for _, batch := range b.inFlight {
		n += len(batch)
	}
	return n
}

// expireDue abandons parts whose callers have no time left; with gone it also
// looks for callers that have gone.
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

// farOff is how far off the due time is while no part waits.
const farOff = 365 * 24 * time.Hour

// expire abandons those of the parts that are due, and notes when the next is
// due.
func (b *batcher) expire(parts []*part, now time.Time, slack time.Duration) {
	for _, p := range parts {
		p.expire(now, slack)
		if p.deadline.Before(b.due) && p.status.Load() != abandoned {
			b.due = p.deadline
		}
	}
}
