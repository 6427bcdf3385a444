package pipe

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// queue gathers requests for a node while a batch is in flight, and sends them as the
// next batch when that one is back, like the group commit of a database. No request
// waits for a batch to fill: to an idle node it is sent at once, by its own caller if
// he may wait as long as a batch.
type queue struct {
	wire   *wire
	node   *node
	bounds Bounds

	mu      sync.Mutex
	waiting []*Request
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
	led *Request

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

// newQueue returns the queue of a node. It starts a goroutine for each batch that may be in
// flight.
func newQueue(w *wire, n *node) *queue {
	bounds := w.Batch.effective()
	q := &queue{
		wire:      w,
		node:      n,
		bounds:    bounds,
		wake:      make(chan struct{}, bounds.InFlight),
		watchWake: make(chan struct{}, 1),
	}
	if w.isCluster {
		q.turns.tags = make([]turn, len(w.Tags))
	}
	for range q.bounds.InFlight + 1 {
		q.batches = append(q.batches, &batch{wire: w, node: n})
	}
	q.leaders = q.batches[q.bounds.InFlight]
	for _, next := range q.batches[:q.bounds.InFlight] {
		q.running.Go(func() { q.work(next) })
	}
	q.running.Go(q.watch)
	return q
}

// enqueue queues a request. It fails at once if the node is not to be asked, or the queue
// is full. A caller who may lead sends the batch himself if the node is idle: then enqueue
// returns when the batch is back, even if he disconnects.
func (q *queue) enqueue(r *Request, mayLead bool) error {
	if err := q.node.breaker.refusal(); err != nil {
		return err
	}
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return errClosed
	}
	if len(q.waiting) >= q.bounds.Queue && !q.sweep() {
		q.mu.Unlock()
		return ErrQueueFull
	}
	q.waiting = append(q.waiting, r)
	if r.deadline.Before(q.due) {
		q.due = r.deadline
	}
	if mayLead && q.leading == nobodyLeads && q.idle == q.bounds.InFlight {
		q.leading, q.led = gathering, r
		q.running.Add(1)
		q.mu.Unlock()
		q.sendNext(q.leaders)
		return nil
	}
	q.wakeOne()
	if q.resting {
		q.resting = false
		q.watchWake <- struct{}{}
	}
	q.mu.Unlock()
	return nil
}

// wakeOne wakes a goroutine for the waiting requests, unless a caller is about to take
// them, or as many batches are in flight as allowed. q.mu is held.
func (q *queue) wakeOne() {
	spare := 0
	if q.leading == away {
		spare = 1
	}
	if q.leading != gathering && q.idle > spare {
		q.idle--
		q.wake <- struct{}{}
	}
}

// endLead ends the lead of a caller, whose batch is back.
func (q *queue) endLead() {
	q.mu.Lock()
	q.leading, q.led = nobodyLeads, nil
	if len(q.waiting) > 0 {
		q.wakeOne()
	}
	q.mu.Unlock()
	q.running.Done()
}

// sweep removes requests whose callers left from a full queue. If the oldest is not one,
// it looks no further and reports false: callers leave in about the order in
// which they came.
func (q *queue) sweep() bool {
	if !q.waiting[0].IsGone() {
		return false
	}
	kept := q.waiting[:0]
	for _, r := range q.waiting {
		if !r.IsGone() {
			kept = append(kept, r)
		}
	}
	clear(q.waiting[len(kept):])
	q.waiting = kept
	return true
}

// close ends the goroutines once the queue is empty, and the probes of its node.
func (q *queue) close() {
	q.mu.Lock()
	q.closed, q.idle, q.resting = true, 0, false
	q.mu.Unlock()
	close(q.wake)
	close(q.watchWake)
	q.running.Wait()
	q.node.breaker.close()
}

// length returns how many requests wait.
func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

func (q *queue) work(next *batch) {
	for q.waitForWork() {
		q.sendNext(next)
	}
}

// sendNext sends the waiting requests as the next batch, and wakes their callers.
func (q *queue) sendNext(next *batch) {
	if next == q.leaders {
		defer q.endLead()
	}
	// Lets callers that are about to ask join the batch: on a hot key this halves
	// the commands.
	runtime.Gosched()
	q.fill(next)
	requests := next.requests
	if len(requests) > 0 {
		next.send(context.Background())
	}
	// The watch must not see its requests any more, since their callers may use them
	// again once they are done.
	q.mu.Lock()
	next.requests = requests[:0]
	q.mu.Unlock()
	for i, r := range requests {
		requests[i] = nil
		q.wire.deliver(r)
	}
}

// waitForWork waits until there are requests in the queue. It reports false once the
// queue is closed and empty.
func (q *queue) waitForWork() bool {
	q.mu.Lock()
	if len(q.waiting) > 0 || q.closed {
		defer q.mu.Unlock()
		return len(q.waiting) > 0
	}
	q.idle++
	q.mu.Unlock()
	<-q.wake
	return true
}

// fill moves the requests that fit from the queue into the next batch. It skips requests
// whose callers disconnected and those of hash tags whose turn comes later, and moves none
// while there is a refusal.
func (q *queue) fill(next *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	refusal, inTurn := q.node.breaker.refusal(), q.turns.next(q.waiting)
	later, hits := q.waiting[:0], 0
	for i, r := range q.waiting {
		if hits > 0 && hits+len(r.Hits) > q.bounds.Size {
			later = append(later, q.waiting[i:]...)
			break
		}
		switch {
		case refusal != nil:
			r.leave(refusal)
		case r.IsGone():
		case !inTurn(r):
			later = append(later, r)
		case r.depart():
			hits += len(r.Hits)
			next.requests = append(next.requests, r)
		}
	}
	clear(q.waiting[len(later):])
	q.waiting = later
	if next == q.leaders {
		q.leading = away
		if len(later) > 0 {
			q.wakeOne()
		}
	}
}

const (
	// watchEvery is how often the watch looks for callers that have no time
	// left. A timer for each caller would cost more than its share of a batch.
	watchEvery = 2 * time.Millisecond
	// goneEvery is the number of looks after which the watch also looks for callers
	// that disconnected: it has to look at the context of each.
	goneEvery = 4
)

// watch ends the wait of callers who have no time left, or disconnected, while there are
// requests.
func (q *queue) watch() {
	for n := 0; q.waitForWaits(); n++ {
		time.Sleep(watchEvery)
		q.expireDue(time.Now(), n%goneEvery == 0)
	}
}

// waitForWaits waits until a caller waits. It reports false once the
// queue is closed and no caller waits.
func (q *queue) waitForWaits() bool {
	q.mu.Lock()
	if len(q.waiting) > 0 || q.inFlight() > 0 || q.closed {
		defer q.mu.Unlock()
		return len(q.waiting) > 0 || q.inFlight() > 0
	}
	q.resting = true
	q.mu.Unlock()
	<-q.watchWake
	return true
}

// inFlight returns how many requests are in flight. q.mu is held.
func (q *queue) inFlight() (n int) {
	for _, sent := range q.batches {
		n += len(sent.requests)
	}
	return n
}

// expireDue ends the wait of callers who have no time left; with gone also of those who
// disconnected.
func (q *queue) expireDue(now time.Time, gone bool) {
	const slack = watchEvery / 2
	q.mu.Lock()
	defer q.mu.Unlock()
	if !gone && q.due.Sub(now) > slack {
		return
	}
	q.due = now.Add(farOff)
	q.expire(q.waiting, now, slack)
	for _, sent := range q.batches {
		q.expire(sent.requests, now, slack)
	}
}

// farOff is how far away the due time is while no request waits.
const farOff = 365 * 24 * time.Hour

// expire ends the waits that are due, and notes when the next one is.
func (q *queue) expire(requests []*Request, now time.Time, slack time.Duration) {
	for _, r := range requests {
		if r == q.led {
			continue
		}
		r.expire(now, slack)
		if r.deadline.Before(q.due) && !r.IsGone() {
			q.due = r.deadline
		}
	}
}
