package memstore_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
)

func TestConformance(t *testing.T) {
	buckettest.Run(t, buckettest.Harness{
		Open: func(t *testing.T, clock func() int64) bucket.Store {
			s := memstore.New(memstore.Options{MaxKeys: 1e6, Clock: clock})
			t.Cleanup(func() { s.Close() })
			return s
		},
		Traces: 20_000,
	})
}
