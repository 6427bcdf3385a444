package top

import (
	"iter"
	"slices"
	"time"
)

// A window is composed of panes: the minute of the live pane of 10 s, which is a Sketch,
// and the five before it, 15 minutes of panes of 3 minutes, and the hour of panes of 12
// minutes. Coarser panes gather what finer ones had when they ended, so everything is
// counted exactly once. All panes begin at multiples of their length, so a window covers
// at most its name, and at least that less one pane.

// Window is a span of time that ends now.
type Window uint8

// The windows.
const (
	Minute Window = iota
	Quarter
	Hour

	windows = iota
)

var windowNames = [windows]string{"1m", "15m", "1h"}

// String returns "1m", "15m" or "1h".
func (w Window) String() string { return windowNames[w] }

const (
	// PaneLength is the length of the live pane.
	PaneLength = 10 * time.Second
	// minutePanes and coarsePanes are how many ended panes of a length belong to a
	// window, besides the one that gathers.
	minutePanes, coarsePanes = 5, 4

	// Parts of a Top's bytes. The live pane has the most, since a subject that it misses
	// is not found anywhere.
	liveParts = 18
	allParts  = liveParts + (8 + 11) + minutePanes*2 + coarsePanes*(2+5)
)

// gatherParts and endedParts are the parts of a gathering and of an ended pane of each
// window.
var (
	gatherParts = [windows]int64{Quarter: 8, Hour: 11}
	endedParts  = [windows]int64{Minute: 2, Quarter: 2, Hour: 5}
)

// widths are the lengths of the panes of each window, in live panes.
var widths = [windows]int64{1, 18, 72}

// pane is a span of time: from at x width live panes on.
type pane struct {
	at      int64
	summary Summary
	bytes   int64 // taken from the budget
}

// history holds the panes that ended, and the coarse ones that gather.
type history struct {
	budget *Budget
	ended  [windows][]pane // oldest first
	gather [windows]*pane  // nil while empty; always for Minute
}

// add adds what a live pane had.
func (h *history) add(at int64, s Summary) {
	h.ended[Minute] = append(h.ended[Minute], h.hold(at, s, endedParts[Minute]))
	h.raise(Quarter, at, s)
}

// raise adds a summary to the gathering pane of a window, or to a new one. at is when it
// began, in live panes.
func (h *history) raise(w Window, at int64, s Summary) {
	at /= widths[w]
	if g := h.gather[w]; g != nil && g.at != at {
		h.end(w)
	}
	if g := h.gather[w]; g != nil {
		s = g.summary.Plus(s)
		h.drop(g)
	}
	p := h.hold(at, s, gatherParts[w])
	h.gather[w] = &p
}

// end ends the gathering pane of a window.
func (h *history) end(w Window) {
	g := h.gather[w]
	h.gather[w] = nil
	h.drop(g)
	h.ended[w] = append(h.ended[w], h.hold(g.at, g.summary, endedParts[w]))
	if w+1 < windows {
		h.raise(w+1, g.at*widths[w], g.summary)
	}
}

// hold returns a pane with a summary, cut to what there is room for.
func (h *history) hold(at int64, s Summary, parts int64) pane {
	kept := s.Within(h.budget.share() * parts / allParts)
	for !h.budget.take(kept.bytes()) {
		kept = kept.Within(kept.bytes() / 2)
	}
	// A copy does not keep what is left out alive.
	kept.Counts = slices.Clone(kept.Counts)
	return pane{at: at, summary: kept, bytes: kept.bytes()}
}

// drop gives back the bytes of a pane.
func (h *history) drop(p *pane) { h.budget.give(p.bytes) }

// advance ends what gathered before now, a number of live panes, drops what is too old
// for its window, and releases what by now exceeds the share.
func (h *history) advance(now int64) {
	for w := Quarter; w < windows; w++ {
		if g := h.gather[w]; g != nil && g.at < now/widths[w] {
			h.end(w)
		}
	}
	for w := range Window(windows) {
		h.ended[w] = slices.DeleteFunc(h.ended[w], func(p pane) bool {
			old := p.at < w.oldest(now)
			if old {
				h.drop(&p)
			}
			return old
		})
		for i := range h.ended[w] {
			h.shrink(&h.ended[w][i], endedParts[w])
		}
		if g := h.gather[w]; g != nil {
			h.shrink(g, gatherParts[w])
		}
	}
}

// shrink releases what a pane has beyond its part.
func (h *history) shrink(p *pane, parts int64) {
	if p.bytes > h.budget.share()*parts/allParts {
		h.drop(p)
		*p = h.hold(p.at, p.summary, parts)
	}
}

// oldest is the first pane that now belongs to the window, in panes of its own length.
func (w Window) oldest(now int64) int64 {
	if w == Minute {
		return now - minutePanes
	}
	return now/widths[w] - coarsePanes
}

// Span returns the length of the time that the window covers: at most its nominal length,
// and at most the time since the clock began.
func (w Window) Span(now time.Duration) time.Duration {
	begun := time.Duration(w.oldest(int64(now/PaneLength))*widths[w]) * PaneLength
	return now - max(0, begun)
}

// of calls yield with the panes of a window except the live one.
func (h *history) of(w Window) iter.Seq[*pane] {
	return func(yield func(*pane) bool) {
		for gathering := Quarter; gathering <= w; gathering++ {
			if g := h.gather[gathering]; g != nil && !yield(g) {
				return
			}
		}
		for i := range h.ended[w] {
			if !yield(&h.ended[w][i]) {
				return
			}
		}
	}
}

// sum returns the summary of a window without its live pane.
func (h *history) sum(w Window) (s Summary) {
	for p := range h.of(w) {
		s = s.Plus(p.summary)
	}
	return s
}

// total returns the total of that.
func (h *history) total(w Window) (n uint64) {
	for p := range h.of(w) {
		n = plus(n, p.summary.Total)
	}
	return n
}

// clear drops everything.
func (h *history) clear() {
	for w := range Window(windows) {
		for i := range h.ended[w] {
			h.drop(&h.ended[w][i])
		}
		if h.gather[w] != nil {
			h.drop(h.gather[w])
		}
	}
	*h = history{budget: h.budget}
}

// isEmpty reports whether it holds nothing.
func (h *history) isEmpty() bool {
	for w := range Window(windows) {
		if len(h.ended[w]) > 0 || h.gather[w] != nil {
			return false
		}
	}
	return true
}
