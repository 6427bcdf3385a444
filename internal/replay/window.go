package replay

import (
	"bytes"
	"cmp"
	"slices"
	"sort"

	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
)

// window holds lines until no earlier one is to be expected. Logs are nearly in order:
// requests decided at the same time write their lines in any order.
type window struct {
	// max is how many lines it holds.
	max   int
	order []held // from head on, by time
	head  int
	bytes int
}

// held is a waiting line.
type held struct {
	decisionlog.Head
	number int64
	isTorn bool // it has no end
	// inForce are the settings for it according to the log, or nil.
	inForce *decisionlog.Settings
	text    []byte
}

const (
	// DefaultWindow is how many lines are held to sort them.
	DefaultWindow = 4096
	// windowBytes bounds the text of the held lines, in addition to one line.
	windowBytes = 64 << 20
)

func (w *window) isFull() bool { return w.len() >= w.max || w.bytes >= windowBytes }
func (w *window) len() int     { return len(w.order) - w.head }
func (w *window) first() *held { return &w.order[w.head] }

func (h *held) compare(other *held) int {
	return cmp.Or(cmp.Compare(h.At, other.At), cmp.Compare(h.Seq, other.Seq))
}

// push adds a line and copies its text. Lines of the same time keep their order.
func (w *window) push(h held, text []byte) {
	h.text = bytes.Clone(text)
	w.bytes += len(text)
	if w.head > 0 && len(w.order) == cap(w.order) {
		w.order = w.order[:copy(w.order, w.order[w.head:])]
		w.head = 0
	}
	w.order = slices.Insert(w.order, w.place(&h), h)
}

// place returns the index of a line in order. That is usually the end.
func (w *window) place(h *held) int {
	n := len(w.order)
	if n == w.head || h.compare(&w.order[n-1]) >= 0 {
		return n
	}
	return w.head + sort.Search(n-w.head, func(i int) bool { return h.compare(&w.order[w.head+i]) < 0 })
}

// pop removes the first line.
func (w *window) pop() held {
	h := w.order[w.head]
	w.order[w.head] = held{}
	w.head++
	w.bytes -= len(h.text)
	return h
}
