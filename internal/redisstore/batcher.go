package redisstore

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// batcher gathers requests for a node while a batch is in flight, and sends them as the
// next batch when that one is back, like the group commit of a database. No request
// waits for a batch to fill: to an idle node it is sent at once, by its own caller if
// he may wait as long as a batch.
type batcher struct {
	store  *Store
	node   *node
	bounds BatchBounds

	mu      sync.Mutex
	waiting []*request
	turns   turns
	batches []*batch  // the last one is leaders
	due     time.Time // no request's deadline is sooner
	idle    int       // goroutines without anything to send
	resting bool      // whether the watch sleeps
	closed  bool
	// leaders is sent by the caller who leads, while all others sleep or wake up: it has
	// what was waiting when he began.
	leaders *batch
	leading leading
	// led is the request of the caller who leads: it cannot leave before the batch is
	// back.
	led *request

	wake, watchWake chan struct{}
	running         sync.WaitGroup
}

// leading says whether a caller leads.
type leading uint8

const (
	nobodyLeads leading = iota
	gathering           // a caller is about to take what waits
	away                // its batch is in flight
)

// newBatcher starts a goroutine for each batch that may be in flight to a node.
func newBatcher(s *Store, n *node) *batcher {
	b := &batcher{
		store:     s,
		node:      n,
		bounds:    s.batch,
		wake:      make(chan struct{}, s.batch.InFlight),
		watchWake: make(chan struct{}, 1),
	}
	if s.isCluster {
		b.turns.tags = make([]turn, len(s.tags))
	}
	for range b.bounds.InFlight + 1 {
		b.batches = append(b.batches, &batch{store: s, node: n})
	}
	b.leaders = b.batches[b.bounds.InFlight]
	for _, next := range b.batches[:b.bounds.InFlight] {
		b.running.Go(func() { b.work(next) })
	}
	b.running.Go(b.watch)
	return b
}

// enqueue queues a request, which will be decided, fail or be abandoned. It fails at once
// if the node is not to be asked, or the queue is full. A caller who may lead sends the
// batch himself if the node is idle: then enqueue returns when the batch is back, even if
// he disconnects.
func (b *batcher) enqueue(r *request, mayLead bool) error {
	if err := b.node.breaker.refusal(); err != nil {
		return err
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return errClosed
	}
	if len(b.waiting) >= b.bounds.Queue && !b.sweep() {
		b.mu.Unlock()
		return errQueueFull
	}
	b.waiting = append(b.waiting, r)
	if r.deadline.Before(b.due) {
		b.due = r.deadline
	}
	if mayLead && b.leading == nobodyLeads && b.idle == b.bounds.InFlight {
		b.leading, b.led = gathering, r
		b.running.Add(1)
		b.mu.Unlock()
		b.sendNext(b.leaders)
		return nil
	}
	b.wakeOne()
	if b.resting {
		b.resting = false
		b.watchWake <- struct{}{}
	}
	b.mu.Unlock()
	return nil
}

// wakeOne wakes a goroutine for the waiting requests, unless a caller is about to take
// them, or as many batches are in flight as allowed. b.mu is held.
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

// endLead ends the lead of a caller, whose batch is back.
func (b *batcher) endLead() {
	b.mu.Lock()
	b.leading, b.led = nobodyLeads, nil
	if len(b.waiting) > 0 {
		b.wakeOne()
	}
	b.mu.Unlock()
	b.running.Done()
}

// sweep removes abandoned requests from a full queue. If the oldest is not abandoned,
// it looks no further and reports false: requests are abandoned in about the order in
// which they came.
func (b *batcher) sweep() bool {
	if b.waiting[0].status.Load() != abandoned {
		return false
	}
	kept := b.waiting[:0]
	for _, r := range b.waiting {
		if r.status.Load() != abandoned {
			kept = append(kept, r)
		}
	}
	clear(b.waiting[len(kept):])
	b.waiting = kept
	return true
}

// close ends the goroutines once the queue is empty.
func (b *batcher) close() {
	b.mu.Lock()
	b.closed, b.idle, b.resting = true, 0, false
	b.mu.Unlock()
	close(b.wake)
	close(b.watchWake)
	b.running.Wait()
}

// length returns how many requests wait.
func (b *batcher) length() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

func (b *batcher) work(next *batch) {
	for b.waitForWork() {
		b.sendNext(next)
	}
}

// sendNext sends the waiting requests as the next batch, and wakes their callers.
func (b *batcher) sendNext(next *batch) {
	if next == b.leaders {
		defer b.endLead()
	}
	// Lets callers that are about to ask join the batch: on a hot key this halves
	// the commands.
	runtime.Gosched()
	b.fill(next)
	requests := next.requests
	if len(requests) > 0 {
		next.send(context.Background())
	}
	// The watch must not see its requests any more, since their callers may use them
	// again once they are done.
	b.mu.Lock()
	next.requests = requests[:0]
	b.mu.Unlock()
	for i, r := range requests {
		requests[i] = nil
		b.store.wake(r)
	}
}

// waitForWork waits until there are requests in the queue. It reports false once the
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

// fill moves the requests that fit from the queue into the next batch. It skips requests
// whose callers disconnected and those of hash tags whose turn comes later, and moves none
// while there is a refusal.
func (b *batcher) fill(next *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	refusal, inTurn := b.node.breaker.refusal(), b.turns.next(b.waiting)
	later, hits := b.waiting[:0], 0
	for i, r := range b.waiting {
		if hits > 0 && hits+len(r.Hits) > b.bounds.Size {
			later = append(later, b.waiting[i:]...)
			break
		}
		switch {
		case refusal != nil:
			r.abandon(refusal)
		case r.status.Load() == abandoned:
		case !inTurn(r):
			later = append(later, r)
		case r.depart():
			hits += len(r.Hits)
			next.requests = append(next.requests, r)
		}
	}
	clear(b.waiting[len(later):])
	b.waiting = later
	if next == b.leaders {
		b.leading = away
		if len(later) > 0 {
			b.wakeOne()
		}
	}
}

const (
	// watchEvery is how often the watch looks for callers that have no time
	// left. A timer for each caller would cost more than its share of a batch.
	watchEvery = 2 * time.Millisecond
	// shortWait is the wait below which the watch is too coarse, so the caller has a
	// timer of its own.
	shortWait = 8 * time.Millisecond
	// goneEvery is the number of looks after which the watch also looks for callers
	// that disconnected: it has to look at the context of each.
	goneEvery = 4
)

// watch abandons requests whose callers have no time left, or disconnected, while
// there are requests.
func (b *batcher) watch() {
	for n := 0; b.waitForWaits(); n++ {
		time.Sleep(watchEvery)
		b.expireDue(time.Now(), n%goneEvery == 0)
	}
}

// waitForWaits waits until a caller waits. It reports false once the
// batcher is closed and no caller waits.
func (b *batcher) waitForWaits() bool {
	b.mu.Lock()
	if len(b.waiting) > 0 || b.inFlight() > 0 || b.closed {
		defer b.mu.Unlock()
		return len(b.waiting) > 0 || b.inFlight() > 0
	}
	b.resting = true
	b.mu.Unlock()
	<-b.watchWake
	return true
}

// inFlight returns how many requests are in flight. b.mu is held.
func (b *batcher) inFlight() (n int) {
	for _, sent := range b.batches {
		n += len(sent.requests)
	}
	return n
}

// expireDue abandons requests whose callers have no time left; with gone it also
// looks for callers that disconnected.
func (b *batcher) expireDue(now time.Time, gone bool) {
	const slack = watchEvery / 2
	b.mu.Lock()
	defer b.mu.Unlock()
	if !gone && b.due.Sub(now) > slack {
		return
	}
	b.due = now.Add(farOff)
	b.expire(b.waiting, now, slack)
	for _, sent := range b.batches {
		b.expire(sent.requests, now, slack)
	}
}

// farOff is how far away the due time is while no request waits.
const farOff = 365 * 24 * time.Hour

// expire abandons the requests that are due, and notes when the next one is.
func (b *batcher) expire(requests []*request, now time.Time, slack time.Duration) {
	for _, r := range requests {
		if r == b.led {
			continue
		}
		r.expire(now, slack)
		if r.deadline.Before(b.due) && r.status.Load() != abandoned {
			b.due = r.deadline
		}
	}
}
