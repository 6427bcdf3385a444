package redisstore

import (
	"fmt"
	"hash/maphash"
	"runtime"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/heaptest"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// Whatever is denied, the memory holds no more bytes than allowed, and other requests
// free them when the denials have ended.
func TestDenialsTakeBoundedBytes(t *testing.T) {
	const bytes = 4 << 20
	for _, c := range []struct {
		name      string
		hits, key int // hits of a group, bytes of a key
		each      time.Duration
	}{
		{"one hit each", 1, 20, 0},
		{"groups as large as are remembered", maxDenialHits, 250, 0},
		{"larger groups", maxDenialHits + 1, 250, 0},
		{"a few at a time", 1, 20, time.Millisecond},
		{"keys with a long prefix", 1, 4000, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Now()
			before := heaptest.InUse()
			d := newDenials(time.Second, bytes, maphash.MakeSeed(), func(time.Time) time.Time { return now })
			n := 6 * bytes / (c.hits * (c.key + 400))
			for i := range n {
				now = now.Add(c.each)
				hits, denied := make([]bucket.Hit, c.hits), make([]bucket.Decision, c.hits)
				for j := range hits {
					// A limit that a request brought and that nobody else has.
					l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1, Period: time.Hour, Name: fmt.Sprint("limit", i)})
					hits[j] = bucket.Hit{Limit: l, Key: fmt.Appendf(nil, "%0*d", c.key, i*c.hits+j), Cost: 1}
					denied[j] = bucket.Decision{RetryAfter: time.Hour, ResetAfter: time.Hour}
				}
				asked, _ := d.known(now, askedOf(d, hits, denied))
				d.learn(asked, askedOf(d, hits, denied), true)
				if _, known := d.known(now, askedOf(d, hits, denied)); known != (c.hits <= maxDenialHits) {
					t.Fatalf("a denial of %d hits is known: %v", c.hits, known)
				}
			}
			const counts = returnCounts * 4
			if used := heaptest.InUse() - before - counts; used > bytes {
				t.Errorf("%d denials take %d bytes, of %d", n, used, bytes)
			}
			for range 2 {
				now = now.Add(time.Second)
				for shard := range uint64(denialShards) {
					d.known(now, &script.Group{Hashes: []uint64{shard}})
				}
			}
			const little = 256 << 10
			if left := heaptest.InUse() - before - counts; left > little {
				t.Errorf("%d bytes are left when all denials have ended", left)
			}
			runtime.KeepAlive(d)
		})
	}
}

// askedOf returns a request as denials get it.
func askedOf(d *denials, hits []bucket.Hit, decisions []bucket.Decision) *script.Group {
	return &script.Group{Hits: hits, Hashes: hashesOf(d.seed, hits), Decisions: decisions}
}

// hashesOf returns the hashes of the hits' keys.
func hashesOf(seed maphash.Seed, hits []bucket.Hit) []uint64 {
	hashes := make([]uint64, len(hits))
	for i := range hits {
		hashes[i] = maphash.Bytes(seed, hits[i].Key)
	}
	return hashes
}
