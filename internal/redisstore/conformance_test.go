package redisstore_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func TestStoreConformance(t *testing.T) {
	type testCase struct {
		name   string
		mode   redisconn.Mode
		addrs  func(testing.TB) []string
		traces int
		set    func(*testOptions)
		wrap   func(*redisstore.Store) bucket.Store
	}
	alone := func(s *redisstore.Store) bucket.Store { return s }
	// The cases before short run always, the others only in a soak.
	const short = 4
	cases := []testCase{
		{"cluster", redisconn.Cluster, redistest.Cluster, soaktest.Long(50, 500), func(*testOptions) {}, alone},
		{"single, knows denials", redisconn.Single, single, 0, knowDenials, alone},
		{"single, many at a time", redisconn.Single, single, soaktest.Long(30, 300), func(*testOptions) {}, amongOthers},
		{"single, windows of another clock", redisconn.Single, single, soaktest.Long(40, 400), haveWrongClock, alone},
		{"single", redisconn.Single, single, 1_000, func(*testOptions) {}, alone},
		{"single, each alone", redisconn.Single, single, 400, eachAlone, alone},
		{"cluster, windows of another clock", redisconn.Cluster, redistest.Cluster, 300, haveWrongClock, alone},
		{"cluster, each alone", redisconn.Cluster, redistest.Cluster, 300, eachAlone, alone},
	}
	for _, tc := range cases[:soaktest.Long(short, len(cases))] {
		t.Run(tc.name, func(t *testing.T) {
			h := buckettest.Harness{
				Open: func(t *testing.T, clock func() int64) bucket.Store {
					o := options(tc.mode, tc.addrs(t)...)
					o.Clock = clock
					tc.set(&o)
					return tc.wrap(open(t, o))
				},
				OpenShared: func(t *testing.T, n int) []bucket.Store {
					o := options(tc.mode, tc.addrs(t)...)
					tc.set(&o)
					stores := make([]bucket.Store, n)
					for i := range stores {
						stores[i] = tc.wrap(open(t, o))
					}
					return stores
				},
				Traces:     tc.traces,
				Algorithms: bucket.Algorithms(),
				OnePlace:   tc.mode == redisconn.Cluster,
				Reserves:   true,
			}
			buckettest.Run(t, h)
			buckettest.RunHolders(t, h)
			buckettest.RunReservations(t, h)
		})
	}
}

// Three daemons share the keys; equal requests of a batch share a line.
func TestOrderOfDecisions(t *testing.T) {
	for _, tc := range []struct {
		name  string
		mode  redisconn.Mode
		addrs func(testing.TB) []string
		set   func(*testOptions)
	}{
		{"single", redisconn.Single, single, func(*testOptions) {}},
		{"single, each alone", redisconn.Single, single, eachAlone},
		{"cluster", redisconn.Cluster, redistest.Cluster, func(*testOptions) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := options(tc.mode, tc.addrs(t)...)
			o.Timeout = time.Minute
			tc.set(&o)
			buckettest.RunOrder(t, open(t, o), open(t, o), open(t, o))
		})
	}
}

func single(t testing.TB) []string { return []string{redistest.Single(t)} }

// knowDenials is without traces: what is remembered may be up to a second old,
// which denials_test.go judges.
func knowDenials(o *testOptions) { o.DenialMemory = time.Second }

// haveWrongClock makes a daemon choose the windows of limits by calendar by a clock that is
// mostly not that of Redis, so that it is asked for others.
func haveWrongClock(o *testOptions) {
	clock := o.Clock
	if clock == nil {
		clock = func() int64 { return time.Now().UnixMicro() }
	}
	var asked atomic.Int64
	o.OwnClock = func() int64 {
		far := [...]int64{0, -40 * 86400e6, 3600e6, 400 * 86400e6}
		return clock() + far[asked.Add(1)%int64(len(far))]
	}
}

func eachAlone(o *testOptions) { o.Batch = redisstore.BatchBounds{} }
