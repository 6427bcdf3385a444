package redisstore

import (
	"runtime"
	"sync"
	"time"
)

// batcher gathers parts for one node while a batch is in flight, and sends them
// as the next batch when that one is back, as the group commit of a database
// does. No part waits for a batch to fill: an idle node is sent a part at once, and
// by its own caller if that may wait as long as a batch.
type batcher struct {
	bounds Batch
	// end is called for each part of a batch that is back.
	end func(*part)
	// refusal returns why nothing may be sent now, or nil.
	refusal func() error

	mu      sync.Mutex
	waiting []*part
	workers []*worker // the last one is leader
	due     time.Time // no part's deadline is sooner
	idle    int       // workers that sleep, without leader
	resting bool      // whether the watch sleeps
	closed  bool
	// leader is used by the caller who leads, while all others sleep or wake up: it
	// sends what waits when it begins.
	leader  *worker
	leading leading

	wake, watchWake chan struct{}
	running         sync.WaitGroup
}

// worker sends one batch at a time.
type worker struct {
	// send returns when the parts are decided or have errors.
	send  func([]*part)
	batch []*part // in flight
}

// leading says whether a caller leads.
type leading uint8

const (
	nobodyLeads leading = iota
	gathering           // a caller is about to take what waits
	away                // its batch is in flight
)

// newBatcher starts a worker for each batch that may be in flight. A worker sends
// its batches by the function that newSend returned for it, which returns when
// the parts are decided or have errors; then it calls end for each part. While
// refusal returns an error, parts are abandoned with that instead of sent.
func newBatcher(bounds Batch, newSend func() func([]*part), end func(*part), refusal func() error) *batcher {
	b := &batcher{
		bounds:    bounds,
		end:       end,
		refusal:   refusal,
		wake:      make(chan struct{}, bounds.InFlight),
		watchWake: make(chan struct{}, 1),
	}
	for range bounds.InFlight + 1 {
		b.workers = append(b.workers, &worker{send: newSend()})
	}
	b.leader = b.workers[bounds.InFlight]
	for _, w := range b.workers[:bounds.InFlight] {
		b.running.Go(func() { b.work(w) })
	}
	b.running.Go(b.watch)
	return b
}

// submit queues a part, which will be done one day, or returns an error. A part
// that finds the queue full fails at once. If it reports that the caller leads, which
// it never does unless mayLead, the caller calls lead next, and waits for its part
// then. A caller who may lead waits for a batch to end even if it has gone.
func (b *batcher) submit(p *part, mayLead bool) (leads bool, _ error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false, errClosed
	}
	if len(b.waiting) >= b.bounds.Queue && !b.sweep() {
		return false, errQueueFull
	}
	b.waiting = append(b.waiting, p)
	if p.deadline.Before(b.due) {
		b.due = p.deadline
	}
	if mayLead && b.leading == nobodyLeads && b.idle == b.bounds.InFlight {
		b.leading = gathering
		b.running.Add(1)
		return true, nil
	}
	b.wakeOne()
	if b.resting {
		b.resting = false
		b.watchWake <- struct{}{}
	}
	return false, nil
}

// wakeOne wakes a worker for what waits, unless a caller is about to take it, or as
// many batches are in flight as may be. b.mu is held.
func (b *batcher) wakeOne() {
	spare := 0
	if b.leading == away {
		spare = 1
	}
	if b.leading != gathering && b.idle > spare {
		b.idle--
		b.wake <- struct{}{}
	}
}

// lead sends what waits, by the goroutine of a caller.
func (b *batcher) lead() {
	defer b.running.Done()
	b.sendNext(b.leader)
	b.mu.Lock()
	b.leading = nobodyLeads
	if len(b.waiting) > 0 {
		b.wakeOne()
	}
	b.mu.Unlock()
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

func (b *batcher) work(w *worker) {
	for b.waitForWork() {
		b.sendNext(w)
	}
}

// sendNext sends what waits as a batch, and ends its parts.
func (b *batcher) sendNext(w *worker) {
	// Lets callers that are about to ask join the batch: on a hot key this halves
	// the commands.
	runtime.Gosched()
	batch := b.drain(w)
	if len(batch) > 0 {
		w.send(batch)
	}
	b.unwatch(w)
	for i, p := range batch {
		batch[i] = nil
		b.end(p)
	}
}

// unwatch hides a worker's batch from the watch, since the callers of its parts
// may use them again once they are done.
func (b *batcher) unwatch(w *worker) {
	b.mu.Lock()
	w.batch = w.batch[:0]
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
func (b *batcher) drain(w *worker) []*part {
	b.mu.Lock()
	defer b.mu.Unlock()
	refusal := b.refusal()
	batch := w.batch
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
	w.batch = batch
	if w == b.leader {
		b.leading = away
		if rest > 0 {
			b.wakeOne()
		}
	}
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
	for _, w := range b.workers {
		n += len(w.batch)
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
	for _, w := range b.workers {
		b.expire(w.batch, now, slack)
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
