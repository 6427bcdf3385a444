package redisstore

import (
	"hash/maphash"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/pipe"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

var (
	// pingLimit has the shortest period, so that its key expires at once.
	pingLimit = neverReached(bucket.MinPeriod)
	// tryLimit has a period that is long enough for its hits to be given back.
	tryLimit = neverReached(time.Minute)
)

// neverReached returns a limit that nobody reaches.
func neverReached(period time.Duration) *bucket.Limit {
	l, err := bucket.NewLimit(bucket.Spec{Algorithm: bucket.FixedWindow, Requests: bucket.MaxRequests, Period: period})
	if err != nil {
		panic(err) // the numbers are above
	}
	return l
}

// ping returns a take by which a node with this tag shows that it decides.
func (k *keyspace) ping(tag int) *pipe.Request { return k.trial(pingLimit, "~ping", tag) }

// trial returns a take of 1 from a limit of the store's own, by a key of each of the
// tags.
func (k *keyspace) trial(l *bucket.Limit, name string, tags ...int) *pipe.Request {
	r := pipe.NewRequest()
	r.Mode, r.Tag = script.Take, tags[0]
	for _, tag := range tags {
		// No key of a caller's limit begins with a tilde after the tag.
		key := []byte(k.heads[tag] + name)
		r.Hits = append(r.Hits, bucket.Hit{Limit: l, Key: key, Cost: 1})
		r.Hashes = append(r.Hashes, maphash.Bytes(k.seed, key))
	}
	r.Decisions = make([]bucket.Decision, len(r.Hits))
	return r
}
