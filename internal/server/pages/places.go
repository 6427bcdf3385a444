package pages

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Places bound the pages that are made at a time. A page takes memory and a core, and is
// written as it is made, so that a client that does not read would keep its place for as
// long as its connection lasts. Such a page is cut when others wait for a place. With a
// semaphore and a deadline alone (http.ResponseController), a few that do not read would
// keep Prometheus out for that long, and a short one would cut long pages.
type Places struct {
	// Max is how many pages are made at a time.
	Max int
	// Wait is how long a page waits for a place at most.
	Wait time.Duration
	// Patience is how long a page may wait for its client in all while others wait for
	// a place, and as long again for each Pace bytes that the client took: one that reads
	// a long page is not cut for its length.
	Patience time.Duration
	Pace     int64
	// Longest is how long a page may take once it has its place; 0 is as long as the
	// server says.
	Longest time.Duration

	mu    sync.Mutex
	taken []*Place
	// waiting have no place yet.
	waiting []*Place
	// looks is whether a look at those who keep others waiting is due.
	looks bool
}

// ErrNoPlace says that a page has waited for a place in vain.
var ErrNoPlace = errors.New("too many ask for pages, and do not read them fast enough; ask again")

var errTooSlow = errors.New("a client read slowly while others waited for its place, and was cut")

// Place is the place of a page. It writes the page to its client.
type Place struct {
	http.ResponseWriter
	places *Places
	who    string
	given  chan struct{} // closed once the page may be made

	// The mutex of the places guards what follows.

	// blocked is how long the writes took that have ended. One that has not ended began
	// at writing.
	blocked time.Duration
	writing time.Time
	written int64 // in bytes
	isCut   bool
}

// Bound returns a handler that makes a page once there is a place for it, or else answers
// 503. Callers are told apart by their addresses. Several handlers may share the places.
func (p *Places) Bound(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		place, err := p.Enter(r.Context(), w, host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer place.Leave()
		page.ServeHTTP(place, r)
	})
}

// Enter waits for a place, which must be left. Of those who wait, the next is one who has
// the fewest places, and of these the first to come. Its error is ErrNoPlace, or says
// that ctx has ended.
func (p *Places) Enter(ctx context.Context, client http.ResponseWriter, who string) (*Place, error) {
	l := &Place{ResponseWriter: client, places: p, who: who, given: make(chan struct{})}
	p.mu.Lock()
	p.waiting = append(p.waiting, l)
	p.fill()
	p.lookLater()
	p.mu.Unlock()
	late := time.NewTimer(p.Wait)
	defer late.Stop()
	var err error
	select {
	case <-l.given:
		if p.Longest != 0 {
			_ = http.NewResponseController(client).SetWriteDeadline(time.Now().Add(p.Longest))
		}
		return l, nil
	case <-late.C:
		err = ErrNoPlace
	case <-ctx.Done():
		err = ctx.Err()
	}
	l.Leave()
	return nil, err
}

// fill gives places to those who wait, while there are some. p.mu is held.
func (p *Places) fill() {
	for len(p.taken) < p.Max && len(p.waiting) > 0 {
		i := p.next()
		next := p.waiting[i]
		p.waiting = slices.Delete(p.waiting, i, i+1)
		p.taken = append(p.taken, next)
		close(next.given)
	}
}

// next returns which of those who wait is the next.
func (p *Places) next() int {
	has := make(map[string]int, len(p.taken))
	for _, l := range p.taken {
		has[l.who]++
	}
	first := 0
	for i, l := range p.waiting {
		if has[l.who] < has[p.waiting[first].who] {
			first = i
		}
	}
	return first
}

// Leave gives the place back, or stops waiting for one.
func (l *Place) Leave() {
	p := l.places
	p.mu.Lock()
	defer p.mu.Unlock()
	isThis := func(other *Place) bool { return other == l }
	p.taken = slices.DeleteFunc(p.taken, isThis)
	p.waiting = slices.DeleteFunc(p.waiting, isThis)
	p.fill()
}

// lookLater arranges for a look at those who have places, as long as somebody waits for
// one. p.mu is held.
func (p *Places) lookLater() {
	if p.looks || len(p.waiting) == 0 {
		return
	}
	p.looks = true
	time.AfterFunc(p.Patience/4, p.look)
}

// look cuts pages that waited for their clients longer than they may, the slowest first,
// and no more of them than wait for a place.
func (p *Places) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looks = false
	now := time.Now()
	places := len(p.waiting)
	for _, l := range p.taken {
		if l.isCut {
			places-- // it leaves as soon as its writer notices
		}
	}
	for ; places > 0 && p.cutSlowest(now); places-- {
	}
	p.lookLater()
}

// cutSlowest cuts the page that waited for its client the longest beyond what it may, and
// reports whether there was one. p.mu is held.
func (p *Places) cutSlowest(now time.Time) bool {
	var slowest *Place
	longest := time.Duration(0)
	for _, l := range p.taken {
		beyond := l.blocked - p.Patience*time.Duration(1+l.written/p.Pace)
		if !l.writing.IsZero() {
			beyond += now.Sub(l.writing)
		}
		if beyond > longest && !l.isCut {
			slowest, longest = l, beyond
		}
	}
	if slowest == nil {
		return false
	}
	slowest.isCut = true
	// This ends a write that has begun. The page has not left, so the writer is still in
	// use.
	_ = http.NewResponseController(slowest.ResponseWriter).SetWriteDeadline(now)
	return true
}

// Write implements http.ResponseWriter.
func (l *Place) Write(b []byte) (int, error) {
	if l.begin() {
		return 0, errTooSlow
	}
	n, err := l.ResponseWriter.Write(b)
	if l.end(n) && err != nil {
		err = errTooSlow
	}
	return n, err
}

// Flush implements http.Flusher.
func (l *Place) Flush() { _ = l.FlushError() }

// FlushError is Flush for http.ResponseController.
func (l *Place) FlushError() error {
	if l.begin() {
		return errTooSlow
	}
	err := http.NewResponseController(l.ResponseWriter).Flush()
	if l.end(0) && err != nil {
		err = errTooSlow
	}
	return err
}

// Unwrap is for http.ResponseController.
func (l *Place) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// begin notes that a write begins, and reports whether the page was cut.
func (l *Place) begin() (isCut bool) {
	l.places.mu.Lock()
	defer l.places.mu.Unlock()
	l.writing = time.Now()
	return l.isCut
}

// end notes that it has ended after n bytes, and reports whether the page was cut.
func (l *Place) end(n int) (isCut bool) {
	l.places.mu.Lock()
	defer l.places.mu.Unlock()
	l.blocked += time.Since(l.writing)
	l.written += int64(n)
	l.writing = time.Time{}
	return l.isCut
}
