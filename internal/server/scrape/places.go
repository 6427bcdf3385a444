package scrape

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Places bound the pages that are made at a time. A page takes memory and a core, and is
// written as it is made, so that a client that does not read would keep its place for as
// long as its connection lasts. Such a page is cut when others wait for a place.
type Places struct {
	// Most is how many pages are made at a time.
	Most int
	// Wait is how long a page waits for a place at most.
	Wait time.Duration
	// Patience is how long a page may wait for its client in all while others wait for
	// a place, and as long again for each Pace bytes that the client took: one that reads
	// a long page is not cut for its length.
	Patience time.Duration
	Pace     int64

	mu    sync.Mutex
	taken []*place
	// waiting have no place yet; the first gets the next.
	waiting []*place
}

var (
	errNoPlace = errors.New("too many ask for the metrics")
	errTooSlow = errors.New("a client read slowly while others waited for the metrics, and was cut")
)

// place is that of a page. It writes the page to its client.
type place struct {
	http.ResponseWriter
	places *Places
	given  chan struct{} // closed once the page may be made

	// The mutex of the places guards what follows.

	// blocked is how long the writes took that ended. One that did not has begun at
	// writing.
	blocked time.Duration
	writing time.Time
	written int64 // in bytes
	isCut   bool
}

// Bound returns a handler that makes a page once there is a place for it, or else answers
// 503. Several handlers may share the places.
func (p *Places) Bound(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		place, err := p.enter(r.Context(), w)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer place.leave()
		page.ServeHTTP(place, r)
	})
}

// enter waits for a place. Its error is errNoPlace, or says that ctx has ended.
func (p *Places) enter(ctx context.Context, client http.ResponseWriter) (*place, error) {
	l := &place{ResponseWriter: client, places: p, given: make(chan struct{})}
	p.mu.Lock()
	p.waiting = append(p.waiting, l)
	p.fill()
	p.mu.Unlock()
	late := time.NewTimer(p.Wait)
	defer late.Stop()
	look := time.NewTicker(p.Patience/4 + 1)
	defer look.Stop()
	for {
		var err error
		select {
		case <-l.given:
			return l, nil
		case <-look.C:
			p.cutSlowest(time.Now())
			continue
		case <-late.C:
			err = errNoPlace
		case <-ctx.Done():
			err = ctx.Err()
		}
		l.leave()
		return nil, err
	}
}

// fill gives places to those who wait, while there are some. p.mu is held.
func (p *Places) fill() {
	for len(p.taken) < p.Most && len(p.waiting) > 0 {
		next := p.waiting[0]
		p.waiting = slices.Delete(p.waiting, 0, 1)
		p.taken = append(p.taken, next)
		close(next.given)
	}
}

// leave gives the place back, or waits for none any more.
func (l *place) leave() {
	p := l.places
	p.mu.Lock()
	defer p.mu.Unlock()
	isThis := func(other *place) bool { return other == l }
	p.taken = slices.DeleteFunc(p.taken, isThis)
	p.waiting = slices.DeleteFunc(p.waiting, isThis)
	p.fill()
}

// cutSlowest cuts the page that waited for its client the longest beyond what it may, if
// there is one.
func (p *Places) cutSlowest(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var slowest *place
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
		return
	}
	slowest.isCut = true
	// A write that has begun ends by this. The page has not left, so the writer is in
	// use still.
	_ = http.NewResponseController(slowest.ResponseWriter).SetWriteDeadline(now)
}

// Write implements http.ResponseWriter.
func (l *place) Write(b []byte) (int, error) {
	if l.begin() {
		return 0, errTooSlow
	}
	n, err := l.ResponseWriter.Write(b)
	if l.end(n) && err != nil {
		err = errTooSlow
	}
	return n, err
}

// begin notes that a write begins, and reports whether the page was cut.
func (l *place) begin() (isCut bool) {
	l.places.mu.Lock()
	defer l.places.mu.Unlock()
	l.writing = time.Now()
	return l.isCut
}

// end notes that it has ended after n bytes, and reports whether the page was cut.
func (l *place) end(n int) (isCut bool) {
	l.places.mu.Lock()
	defer l.places.mu.Unlock()
	l.blocked += time.Since(l.writing)
	l.written += int64(n)
	l.writing = time.Time{}
	return l.isCut
}
