package redisstore

import (
	"hash/maphash"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
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
