package redisstore_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/bucket/redisstore/redistest"
)

func TestConformance(t *testing.T) {
	for _, tc := range []struct {
		name   string
		mode   redisstore.Mode
		addrs  func(testing.TB) []string
		traces int
	}{
		{"single", redisstore.Single, func(t testing.TB) []string { return []string{redistest.Single(t)} }, 50_000},
		{"cluster", redisstore.Cluster, redistest.Cluster, 5_000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			buckettest.Run(t, buckettest.Harness{
				Open: func(t *testing.T, clock func() int64) bucket.Store {
					o := options(tc.mode, tc.addrs(t)...)
					o.Clock = clock
					return open(t, o)
				},
				OpenShared: func(t *testing.T, n int) []bucket.Store {
					o := options(tc.mode, tc.addrs(t)...)
					stores := make([]bucket.Store, n)
					for i := range stores {
						stores[i] = open(t, o)
					}
					return stores
				},
				Traces:   tc.traces,
				OnePlace: tc.mode == redisstore.Cluster,
			})
		})
	}
}
