package takeapi

import "sync"

// itemQueue holds the answers that a stream has not sent yet. Callers open streams
// as they like, so it takes no more memory than it has answers, unlike a channel
// with room for all.
type itemQueue struct {
	mu     sync.Mutex
	items  []*item
	closed bool
	// changed has an element when items or closed have changed.
	changed chan struct{}
}

func newItemQueue() *itemQueue { return &itemQueue{changed: make(chan struct{}, 1)} }

// add never waits.
func (q *itemQueue) add(items ...*item) {
	q.mu.Lock()
	q.items = append(q.items, items...)
	q.mu.Unlock()
	q.notify()
}

// close ends the queue: no more items come.
func (q *itemQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.notify()
}

func (q *itemQueue) notify() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// next waits for items and returns those that are there, up to maxItems; none once
// the queue is closed and empty. Only one goroutine may call it.
func (q *itemQueue) next(maxItems int) []*item {
	for {
		q.mu.Lock()
		items, closed := q.items, q.closed
		n := min(maxItems, len(items))
		q.items = items[n:]
		if n == len(items) {
			q.items = nil
		}
		q.mu.Unlock()
		if n > 0 || closed {
			return items[:n:n]
		}
		<-q.changed
	}
}
