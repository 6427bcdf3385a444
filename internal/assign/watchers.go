package assign

import (
	"context"
	"sync"
)

// Watchers are the watchers of a store's records. The zero Watchers has none, and its
// methods may be called concurrently.
type Watchers struct {
	mu sync.Mutex
	// all has what each watcher calls, by the function that ends its watch.
	all map[*context.CancelFunc]func(Record) bool
}

// Watch calls each for every record from now on, until ctx ends or each returns false, as
// a Store does.
func (w *Watchers) Watch(ctx context.Context, each func(Record) bool) error {
	ended, end := context.WithCancel(ctx)
	defer end()
	w.mu.Lock()
	if w.all == nil {
		w.all = make(map[*context.CancelFunc]func(Record) bool)
	}
	w.all[&end] = each
	w.mu.Unlock()
	<-ended.Done()
	w.mu.Lock()
	delete(w.all, &end)
	w.mu.Unlock()
	return ctx.Err()
}

// Notify passes a record to all watchers.
func (w *Watchers) Notify(r Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for end, each := range w.all {
		if !each(r) {
			delete(w.all, end)
			(*end)()
		}
	}
}
