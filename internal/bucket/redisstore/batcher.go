package redisstore

import (
	"runtime"
	"sync"
)

// batcher gathers what is asked of one node while a batch is on its way, and
// sends the next batch when that one is back ("group commit"). There is no
// timer: what is asked of an idle node leaves at once.
type batcher struct {
	bounds Batch

	mu      sync.Mutex
	waiting []*part
	idle    int // workers that sleep
	closed  bool
	wake    chan struct{}
	workers sync.WaitGroup
}

// newBatcher starts as many workers as batches may be on their way. Each takes
// batches to the function that makeSend returns for it, which answers all parts.
func newBatcher(bounds Batch, makeSend func() func([]*part)) *batcher {
	b := &batcher{bounds: bounds, wake: make(chan struct{}, bounds.InFlight)}
	for range bounds.InFlight {
		b.workers.Go(func() { b.work(makeSend()) })
	}
	return b
}

// submit queues a part, which will be answered, or returns an error.
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
	if b.idle > 0 {
		b.idle--
		b.wake <- struct{}{}
	}
	return nil
}

// sweep makes room in a full queue by removing the parts whose callers have
// gone. It reports false where that is not worth it: the oldest is waited for,
// and callers leave in about the order in which they came.
func (b *batcher) sweep() bool {
	if b.waiting[0].standing.Load() != left {
		return false
	}
	kept := b.waiting[:0]
	for _, p := range b.waiting {
		if p.standing.Load() != left {
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
	b.closed = true
	b.idle = 0
	b.mu.Unlock()
	close(b.wake)
	b.workers.Wait()
}

// length is how many parts wait.
func (b *batcher) length() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

func (b *batcher) work(send func([]*part)) {
	var batch []*part
	for b.waitForWork() {
		// Lets those join who are about to ask: on a hot key it halves the calls.
		runtime.Gosched()
		batch = b.drain(batch[:0])
		if len(batch) > 0 {
			send(batch)
		}
		clear(batch)
	}
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

// drain moves what fits into a batch from the queue, without those whose
// callers have gone.
func (b *batcher) drain(batch []*part) []*part {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, hits := 0, 0
	for ; n < len(b.waiting); n++ {
		p := b.waiting[n]
		if p.standing.Load() == left {
			continue
		}
		if hits > 0 && hits+len(p.hits) > b.bounds.Size {
			break
		}
		if p.send() {
			hits += len(p.hits)
			batch = append(batch, p)
		}
	}
	rest := copy(b.waiting, b.waiting[n:])
	clear(b.waiting[rest:])
	b.waiting = b.waiting[:rest]
	return batch
}
