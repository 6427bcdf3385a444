package redisstore

import (
	"hash/maphash"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/pipe"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// keyspace says where the keys of hits are.
type keyspace struct {
	tags      script.Tags
	heads     []string     // by tag: the beginning of its keys, prefix and tag
	seed      maphash.Seed // of the hashes of keys
	isCluster bool         // then a command has keys of one tag
}

func newKeyspace(conn *redisconn.Conn, hashTags int) keyspace {
	k := keyspace{tags: script.NewTags(hashTags), seed: maphash.MakeSeed(), isCluster: conn.Cluster() != nil}
	for _, tag := range k.tags {
		k.heads = append(k.heads, conn.Prefix()+"{"+tag+"}:")
	}
	return k
}

// locate returns the tag of a hit, and its key in Redis.
func (k *keyspace) locate(h *bucket.Hit) (tag int, key string) {
	tag = k.tags.Of(h.Place)
	return tag, k.heads[tag] + string(h.Key)
}

// tagOf returns the tag of hits; isSpread says that they have several, on a cluster. In
// another place the tag does not matter.
func (k *keyspace) tagOf(hits []bucket.Hit) (tag int, isSpread bool) {
	if !k.isCluster {
		return 0, false
	}
	for i := range hits {
		of := k.tags.Of(hits[i].Place)
		if i > 0 && of != tag {
			return tag, true
		}
		tag = of
	}
	return tag, false
}

var (
	// pingLimit has the shortest period, so that its key expires at once.
	pingLimit = neverReached(bucket.MinPeriod)
	// tryLimit has a period that is long enough for its hits to be given back.
	tryLimit = neverReached(time.Minute)
)

// neverReached returns a limit that is never reached.
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
