package explain

import (
	"context"
	"fmt"
	"iter"

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

// listHolders gives the limits of inspected subjects their holders. Where a holder is
// inspected it is the only one. What the store does not say is left out.
func listHolders(ctx context.Context, store bucket.Store, c *decide.Call, x *Explanation) {
	lister, ok := store.(HolderLister)
	if !ok {
		return
	}
	for h, l := range shown(c, x) {
		if l.Algorithm.HasHolders() {
			l.Held, _ = lister.Holders(ctx, h, MaxListed)
		}
	}
}

// BillReader is a store that says what IDs have charged.
type BillReader interface {
	// Bill returns what the takes of an ID have charged to the hit's state; the zero Bill
	// if it knows of none. Its Until is the moment from which it does not, by clock: the
	// store's, in microseconds since the Unix epoch.
	Bill(ctx context.Context, id string, h *bucket.Hit) (b bucket.Bill, clock int64, err error)
}

// listBills gives the limits of a call that names an ID what this ID has charged to them.
func listBills(ctx context.Context, store bucket.Store, c *decide.Call, x *Explanation) error {
	reader, ok := store.(BillReader)
	if !ok {
		return nil
	}
	for h, l := range shown(c, x) {
		if l.Algorithm.HasHolders() {
			continue
		}
		b, clock, err := reader.Bill(ctx, c.StoreID(), h)
		if err != nil {
			return &decide.Error{Kind: decide.NotReady, Text: fmt.Sprintf("the store does not tell what the id has charged: %v", err)}
		}
		if b.IsKnown(clock) {
			l.Bill, l.Clock = b, clock
		}
	}
	return nil
}

// shown are the hits of a call, each with the limit that its explanation shows for it.
func shown(c *decide.Call, x *Explanation) iter.Seq2[*bucket.Hit, *Limit] {
	return func(yield func(*bucket.Hit, *Limit) bool) {
		for i := range x.Descriptors {
			hits, limits := c.Outcomes[i].Hits, x.Descriptors[i].Limits
			first := len(hits) - len(limits) // a refusal's own limit is not shown
			for j := range limits {
				if !yield(&hits[first+j], &limits[j]) {
					return
				}
			}
		}
	}
}
