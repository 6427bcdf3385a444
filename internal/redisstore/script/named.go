package script

import (
	"fmt"
	"hash/maphash"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Named is what a request has besides if it is a take with an ID, or a Settle. Nothing of
// it changes but Settled.
type Named struct {
	ID string
	// Lasts is that of the reservation, if it is a take.
	Lasts time.Duration
	// Places are where the hits' bills are.
	Places []BillPlace
	// Settled are the result of a Settle.
	Settled []bucket.Settled
}

// BillPlace is where the bill of a hit is kept: its key, and the key that says when the
// hit's state was reset.
type BillPlace struct{ Key, Reset HashedKey }

// HashedKey is a key as in Redis, and its hash as in Group.Hashes.
type HashedKey struct {
	Text []byte
	Hash uint64
}

// Name gives a request the ID of its take, or of what it settles. Hashes of keys are by
// seed.
func (r *Group) Name(id string, lasts time.Duration, seed maphash.Seed) {
	r.Named = &Named{ID: id, Lasts: lasts, Places: make([]BillPlace, len(r.Hits)), Settled: make([]bucket.Settled, len(r.Hits))}
	for i := range r.Hits {
		r.Named.Places[i] = BillPlace{
			Key:   hashed(bucket.AppendBill(nil, r.Hits[i].Key, id), seed),
			Reset: hashed(bucket.AppendReset(nil, r.Hits[i].Key), seed),
		}
	}
}

func hashed(key []byte, seed maphash.Seed) HashedKey { return HashedKey{key, maphash.Bytes(seed, key)} }

// CopyNamed gives a request that gets hit i of another also what belongs to it by name.
func (r *Group) CopyNamed(from *Group, i int) {
	if from.Named == nil {
		return
	}
	if r.Named == nil {
		r.Named = &Named{ID: from.Named.ID, Lasts: from.Named.Lasts}
	}
	r.Named.Places = append(r.Named.Places, from.Named.Places[i])
	r.Named.Settled = append(r.Named.Settled, bucket.Settled{})
}

// encodeBill appends what a hit of a take with an ID ends with.
func (c *Command) encodeBill(r *Group, i int) {
	n := r.Named
	c.input = appendNumbers(c.input, c.hashedKey(&n.Places[i].Key), c.hashedKey(&n.Places[i].Reset), r.Hits[i].Limit.Pace(), n.Lasts.Microseconds())
}

// encodeSettle appends a Settle.
func (c *Command) encodeSettle(r *Group, at func() int64) {
	c.input = appendNumbers(c.input, int64(Settle), 1, int64(len(r.Hits)))
	for i := range r.Hits {
		h, bill := &r.Hits[i], &r.Named.Places[i]
		unit := max(1, h.Limit.Unit) // windows count in costs
		c.input = appendNumbers(c.input, c.key(h.Key, r.Hashes[i]), c.limit(h.Limit, at), h.Cost,
			c.hashedKey(&bill.Key), c.hashedKey(&bill.Reset), h.Limit.Pace(), unit)
	}
}

func (c *Command) hashedKey(k *HashedKey) int64 { return c.key(k.Text, k.Hash) }

// settled reads the results of a Settle, after its mark.
func (r *reader) settled(clock int64, q *Group) error {
	for i := range q.Named.Settled {
		takes, err := r.next()
		if err != nil {
			return err
		}
		s := &q.Named.Settled[i]
		if *s = (bucket.Settled{At: clock}); takes == 0 {
			continue
		}
		var n [4]int64
		for j := range n {
			if n[j], err = r.next(); err != nil {
				return err
			}
			if n[j] < 0 || n[j] > maxNumber || takes < 0 || takes > maxNumber {
				return fmt.Errorf("the script's reply holds %d and %d, which are of no settlement", takes, n[j])
			}
		}
		s.IsKnown, s.Takes = true, takes-1
		s.Returned, s.Added, s.Remaining, s.ResetAfter = n[0], n[1], n[2], time.Duration(min(n[3], maxMicros))*time.Microsecond
	}
	return nil
}
