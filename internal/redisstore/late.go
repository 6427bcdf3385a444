package redisstore

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/pipe"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// A late take may be decided when its caller has disconnected, or was denied in another
// way. Costs that it took then stay charged. Slots are given back, since they would
// not be released: the caller does not know that it has any. A caller who was let through
// without Redis keeps them.

// mayTakeLate reports whether a request that its caller has left may yet take slots.
func mayTakeLate(r *pipe.Request) bool {
	if r.Mode != script.Take || !r.IsLate() {
		return false
	}
	for i := range r.Hits {
		if r.Hits[i].Holder != "" && r.Hits[i].Cost > 0 {
			return true
		}
	}
	return false
}

// giveBackLate gives back the slots that a late request newly took.
func (b *backend) giveBackLate(late *pipe.Request) {
	if late.Err != nil {
		return
	}
	back := b.get()
	back.Mode, back.Tag = script.GiveBack, late.Tag
	allowed := bucket.GroupAllowed(late.Hits, late.Decisions)
	for i := range late.Hits {
		if h, d := &late.Hits[i], late.Decisions[i]; h.Holder != "" && d.At != 0 && bucket.Charged(h, &d, allowed) {
			back.copyHit(&late.Group, i, d)
		}
	}
	if len(back.Hits) == 0 {
		b.recycle(back)
		return
	}
	b.returns.Go(func() {
		now := time.Now()
		_ = b.ask(context.Background(), now, now.Add(b.timeout), back) // else they lapse
		b.recycle(back)
	})
}

// dropLate says that a caller was not let through: what its late requests take is given
// back.
func (b *backend) dropLate(r *request) {
	for _, late := range r.late {
		if isBack := late.Drop(); isBack {
			b.giveBackLate(late)
		}
	}
}
