package sink

import (
	"sync"
	"time"
)

// queue holds lines that wait for a writer: one half gathers them while the writer writes
// the other. Its methods may be called concurrently, except take, which is the writer's.
type queue struct {
	half int // the most bytes of each half
	// wake has an element when the writer should run early.
	wake chan struct{}

	mu       sync.Mutex
	front    portion
	spare    []byte // of the other half, while the writer does not have it
	isClosed bool
	// unsettled is how many lines the writer has taken whose result it has not reported
	// yet, and isAbandoned is set once that no longer counts.
	unsettled   int
	isAbandoned bool
}

// portion is what a writer takes at a time.
type portion struct {
	text  []byte
	lines int
	// marks are in the order of their offsets.
	marks []mark
}

// mark stands in a portion where limits came into force.
type mark struct {
	offset int
	limits *limits
}

const (
	// wakeAt is the number of bytes at which the writer runs early.
	wakeAt = 64 << 10
	// keptBytes is the most memory of a half that is kept whether it is used or not.
	keptBytes = 256 << 10
	// maxMarks bounds the limits that wait for the writer.
	maxMarks = 8
)

// newQueue returns a queue of at most this many bytes.
func newQueue(bytes int) *queue { return &queue{half: bytes / 2, wake: make(chan struct{}, 1)} }

// add adds a line of two pieces, or reports that there is no room for it.
func (q *queue) add(head, tail []byte) bool {
	q.mu.Lock()
	n := len(q.front.text) + len(head) + len(tail)
	if q.isClosed || n > q.half {
		q.mu.Unlock()
		return false
	}
	if n > cap(q.front.text) {
		grown := make([]byte, len(q.front.text), min(q.half, max(n, 2*cap(q.front.text), wakeAt)))
		copy(grown, q.front.text)
		q.front.text = grown
	}
	q.front.text = append(append(q.front.text, head...), tail...)
	q.front.lines++
	q.mu.Unlock()
	if n >= wakeAt {
		q.rouse()
	}
	return true
}

// serve calls write whenever lines may wait, and once more when end is closed.
func (q *queue) serve(end <-chan struct{}, write func()) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for hasEnded := false; !hasEnded; {
		select {
		case <-q.wake:
		case <-tick.C:
		case <-end:
			hasEnded = true
		}
		write()
	}
}

// rouse wakes the writer.
func (q *queue) rouse() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// mark puts limits in force after the lines so far.
func (q *queue) mark(l *limits) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.front.marks); n == maxMarks { // the writer is stuck
		q.front.marks[n-1].limits = l
		return
	}
	q.front.marks = append(q.front.marks, mark{len(q.front.text), l})
}

// take returns what waits, which is the writer's until it calls done.
func (q *queue) take() portion {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.front
	q.front, q.spare = portion{text: q.spare}, nil
	q.unsettled += b.lines
	return b
}

// settle notes that the writer knows the result of this many lines. It reports whether
// that is still to be counted.
func (q *queue) settle(lines int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.unsettled -= lines
	return !q.isAbandoned
}

// abandon returns the number of lines whose result is unknown: those that wait, and those
// that the writer has. What the writer settles later does not count.
func (q *queue) abandon() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.isAbandoned = true
	return q.front.lines + q.unsettled
}

// done takes back the memory of a portion.
func (q *queue) done(b portion) {
	if cap(b.text) > keptBytes && len(b.text) < cap(b.text)/4 {
		return // the disk was slow for a while
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.spare = b.text[:0]
}

// close makes the queue take no more lines.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.isClosed = true
}
