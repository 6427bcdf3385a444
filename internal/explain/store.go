package explain

import (
	"context"
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decide"
)

// HolderLister is a store that lists who holds slots.
type HolderLister interface {
	// Holders returns who holds slots of the hit's state: the first n of them, or of a hit
	// that names a holder this one alone.
	Holders(ctx context.Context, h *bucket.Hit, n int) (bucket.Held, error)
}

// MaxListed is how many holders of a limit are listed at most.
const MaxListed = 100

// BillReader is a store that says what IDs have charged.
type BillReader interface {
	// Bill returns what the takes of an ID have charged to the hit's state; the zero Bill
	// if it knows of none. Its Until is the moment from which it does not, by clock: the
	// store's, in microseconds since the Unix epoch.
	Bill(ctx context.Context, id string, h *bucket.Hit) (b bucket.Bill, clock int64, err error)
}

// ask asks the store for the holders of an inspected limit, if these are its states, or
// else for what the ID of a call has charged to it. Holders that the store does not list are
// left out.
func (l *Limit) ask(ctx context.Context, store bucket.Store, c *decide.Call, h *bucket.Hit) error {
	lister, hasHolders := store.(HolderLister)
	reader, hasBills := store.(BillReader)
	switch {
	case l.Algorithm.HasHolders():
		if hasHolders && c.Inspects {
			l.Held, _ = lister.Holders(ctx, h, MaxListed)
		}
	case hasBills && c.ID != "":
		b, clock, err := reader.Bill(ctx, c.StoreID(), h)
		if err != nil {
			return &decide.Error{Kind: decide.NotReady, Text: fmt.Sprintf("what the id has charged cannot be read from the store: %v", err)}
		}
		if b.IsKnown(clock) {
			l.Bill, l.Clock = b, clock
		}
	}
	return nil
}
