package script

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }

// rig is a server, and what commands to it have in common.
type rig struct {
	redis    *redisconn.Conn
	tags     Tags
	seed     maphash.Seed
	clock    func() int64 // may be nil
	ownClock func() int64 // by which windows are chosen
}

func newRig(t testing.TB, clock func() int64) *rig {
	t.Helper()
	return rigAt(t, redistest.Single(t), fmt.Sprintf("test-%x", rand.Uint64()), clock)
}

// rigAt returns a rig on a server.
func rigAt(t testing.TB, address, prefix string, clock func() int64) *rig {
	t.Helper()
	conn, err := redisconn.New(redisconn.Options{
		Mode: redisconn.Single, Addresses: []string{address}, Prefix: prefix, Timeout: 10 * time.Second, Script: Source,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	own := clock
	if own == nil {
		own = func() int64 { return time.Now().UnixMicro() }
	}
	return &rig{redis: conn, tags: NewTags(4), seed: maphash.MakeSeed(), clock: clock, ownClock: own}
}

var skew = strconv.FormatInt(bucket.DefaultMaxClockSkew.Microseconds(), 10)

// argsOf adds requests to a command that may have been used before.
func argsOf(s *rig, c *Command, requests []*Group) []any {
	c.Reset()
	for _, r := range requests {
		c.Add(r)
	}
	clock := ""
	if s.clock != nil {
		clock = strconv.FormatInt(s.clock(), 10)
	}
	c.Prepare(context.Background(), skew, clock, s.ownClock)
	return c.Cmd.Args()
}

func testHit(s *rig, l *bucket.Limit, user string, cost int64) bucket.Hit {
	h := buckettest.Hit(l, user, cost)
	h.Key = append([]byte(s.redis.Prefix()+"{"+s.tags[s.tags.Of(h.Place)]+"}:"), h.Key...)
	return h
}

func groupOn(s *rig, m Mode, hits ...bucket.Hit) *Group {
	return &Group{Mode: m, Hits: hits, Hashes: hashesOf(s.seed, hits), Decisions: make([]bucket.Decision, len(hits))}
}

// hashesOf returns the hashes of the hits' keys.
func hashesOf(seed maphash.Seed, hits []bucket.Hit) []uint64 {
	hashes := make([]uint64, len(hits))
	for i := range hits {
		hashes[i] = maphash.Bytes(seed, hits[i].Key)
	}
	return hashes
}

// decideBy has the script decide requests, in one command. It returns how many states
// that mended.
func decideBy(t testing.TB, s *rig, c *Command, requests []*Group) int64 {
	t.Helper()
	cmd := redis.NewIntSliceCmd(context.Background(), argsOf(s, c, requests)...)
	_ = s.redis.Process(context.Background(), cmd)
	reply, err := cmd.Result()
	if err != nil {
		t.Fatal(err)
	}
	h, err := c.Decode(reply)
	if err != nil {
		t.Fatal(err)
	}
	return h.Mended
}
