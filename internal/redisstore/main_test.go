package redisstore_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }

type (
	connOptions  = redisconn.Options
	storeOptions = redisstore.Options
)

// testOptions are those of a store and its connection.
type testOptions struct {
	connOptions
	storeOptions
	Log  *slog.Logger // of both
	Hook redis.Hook   // of the connection; nil: none
}

// options are those of a store under a prefix of its own.
func options(mode redisconn.Mode, addresses ...string) testOptions {
	return testOptions{
		connOptions: connOptions{
			Mode:      mode,
			Addresses: addresses,
			Prefix:    fmt.Sprintf("test-%x", rand.Uint64()),
			// The machines that run tests may be slow; what is tested is not.
			Timeout: 10 * time.Second,
		},
		storeOptions: storeOptions{
			HashTags: 32,
			Batch:    redisstore.BatchBounds{Size: 1000, InFlight: 1, Queue: 10_000},
		},
	}
}

// newStore returns a store, and a function that closes it with its connection.
func newStore(o testOptions) (*redisstore.Store, func() error, error) {
	o.Script = script.Source
	o.connOptions.Log, o.storeOptions.Log = o.Log, o.Log
	conn, err := redisconn.New(o.connOptions)
	if err != nil {
		return nil, nil, err
	}
	if o.Hook != nil {
		conn.AddHook(o.Hook)
	}
	s, err := redisstore.New(conn, o.storeOptions)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return s, func() error { return errors.Join(s.Close(), conn.Close()) }, nil
}

func open(t testing.TB, o testOptions) *redisstore.Store {
	t.Helper()
	s, end, err := newStore(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = end() })
	return s
}

var (
	newLimit = buckettest.NewLimit
	hit      = buckettest.Hit
	take     = buckettest.Take
)
