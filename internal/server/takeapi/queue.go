package takeapi

import "sync"

// itemQueue holds the answers that a stream has not sent yet. Callers open streams
// as they like, so it takes no more memory than it has answers, unlike a channel
// with room for all.
type itemQueue struct {
	mu     sync.Mutex
	items  []*item
	closed bool
	// changed is signalled when items or closed have changed.
	changed *sync.Cond
}

func newItemQueue() *itemQueue {
	q := new(itemQueue)
	q.changed = sync.NewCond(&q.mu)
	return q
}

// add never waits.
func (q *itemQueue) add(items ...*item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = append(q.items, items...)
	q.changed.Signal()
}

// close ends the queue: no more items come.
func (q *itemQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Signal()
}

// next waits for items and returns those that are there, up to maxItems; none once
// the queue is closed and empty. Only one goroutine may call it.
func (q *itemQueue) next(maxItems int) []*item {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.closed {
		q.changed.Wait()
	}
	n := min(maxItems, len(q.items))
	items := q.items[:n:n]
	if q.items = q.items[n:]; len(q.items) == 0 {
		q.items = nil
	}
	return items
}
