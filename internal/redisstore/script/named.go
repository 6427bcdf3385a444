package script

import (
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

func hashed(key []byte, seed maphash.Seed) HashedKey { return HashedKey{key, maphash.Bytes(seed, key)} }
