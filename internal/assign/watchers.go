package assign

import (
	"context"
	"sync"
)

// Watchers are the watchers of a store's records. The zero Watchers has none, and its
// methods may be called concurrently.
type Watchers struct {
	mu  sync.Mutex
	all map[*watcher]struct{}
}

type watcher struct {
	tell func(Record) bool
	end  context.CancelFunc
}

// Watch calls tell for every record from now on, until ctx ends or tell returns
// false, as a Store does.
func (w *Watchers) Watch(ctx context.Context, tell func(Record) bool) error {
	ended, end := context.WithCancel(ctx)
	defer end()
	me := &watcher{tell, end}
	w.mu.Lock()
	if w.all == nil {
		w.all = make(map[*watcher]struct{})
	}
	w.all[me] = struct{}{}
	w.mu.Unlock()
	<-ended.Done()
	w.mu.Lock()
	delete(w.all, me)
	w.mu.Unlock()
	return ctx.Err()
}

// Tell tells all watchers of a record.
func (w *Watchers) Tell(r Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for me := range w.all {
		if !me.tell(r) {
			delete(w.all, me)
			me.end()
		}
	}
}
