package takeapi

import "sync"

// itemQueue has the answers of a stream that are to be sent. Streams are opened
// by callers, so it holds no more memory than there are answers, as a channel
// with room for all would.
type itemQueue struct {
	mu     sync.Mutex
	items  []*item
	closed bool
	// changed has something in it when items or closed did.
	changed chan struct{}
}

func newItemQueue() *itemQueue { return &itemQueue{changed: make(chan struct{}, 1)} }

// add never waits.
func (q *itemQueue) add(it *item) {
	q.mu.Lock()
	q.items = append(q.items, it)
	q.mu.Unlock()
	q.tell()
}

// close tells next that no more is added.
func (q *itemQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.tell()
}

func (q *itemQueue) tell() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// next waits for items and returns those that are there, up to most; none once
// the queue is closed and empty. Only one goroutine may call it.
func (q *itemQueue) next(most int) []*item {
	for {
		q.mu.Lock()
		items, closed := q.items, q.closed
		n := min(most, len(items))
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
