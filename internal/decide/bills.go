package decide

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// BillReader is a store that tells what IDs have charged.
type BillReader interface {
	// Bill returns what the takes of an ID have charged to the hit's state; the zero Bill
	// if it knows of none. Its Until is the moment from which it does not, by clock: the
	// store's, in microseconds since the Unix epoch.
	Bill(ctx context.Context, id string, h *bucket.Hit) (b bucket.Bill, clock int64, err error)
}

// Billed is what an ID has charged to an explained limit.
type Billed struct {
	bucket.Bill
	// Clock is that of the store when it was read.
	Clock int64
}

// listBills gives the limits of an explained call that names an ID what this ID has
// charged to them.
func (x *explaining) listBills(ctx context.Context, e *Explanation) error {
	if x.decider.Bills == nil {
		return nil
	}
	for h, l := range x.shown(e) {
		if l.Algorithm.HasHolders() {
			continue
		}
		b, clock, err := x.decider.Bills.Bill(ctx, x.StoreID(), h)
		switch {
		case err != nil:
			return errorOf(NotReady, "the store does not tell what the id has charged: %v", err)
		case b.IsKnown(clock):
			l.Billed = &Billed{b, clock}
		}
	}
	return nil
}
