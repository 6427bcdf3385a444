package redislog_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/assigntest"
	"github.com/ratelimitd/ratelimitd/internal/assign/redislog"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// BenchmarkChange is what a change takes until three daemons have it in force.
func BenchmarkChange(b *testing.B) {
	daemons := fleetOf(b, 3, connOptions(redisconn.Single, redistest.Single(b)), redislog.Options{})
	for i := 0; b.Loop(); i++ {
		assigntest.Apply(b, daemons[i%3], assigntest.Plan(assigntest.Subject("api", fmt.Sprint(i%1000)), fmt.Sprint("p", i)))
	}
}

// BenchmarkLoad loads a million assignments into one daemon. Beside the time it tells
// the CPU time of the process, which a busy machine changes less.
func BenchmarkLoad(b *testing.B) {
	const n = 1_000_000
	c := connOptions(redisconn.Single, redistest.Start(b).Addr())
	seed(b, c, n)
	before := cpuTime()
	for b.Loop() {
		d := startLoaded(b, c, redislog.Options{})
		if d.Table().Len() != n {
			b.Fatal(d.Table().Len())
		}
		b.StopTimer()
		d.stop()
		b.StartTimer()
	}
	b.ReportMetric((cpuTime()-before).Seconds()/float64(b.N), "cpu-s/op")
}

// seed writes assignments where the store has them.
func seed(b *testing.B, c redisconn.Options, n int) {
	b.Helper()
	ctx := context.Background()
	pipe := redistest.Client(b, c.Addresses[0]).Pipeline()
	tags := hashTags(32)
	for i := range n {
		a := assigntest.Plan(assigntest.Subject("api", fmt.Sprintf("acme-%06d", i)), fmt.Sprint("p", i%5)).Assignment
		a.At, a.ETag = 1780000000000000, "1780000000000-0"
		text := a.Text()
		pipe.HSet(ctx, c.Prefix+"{"+tags[xxhash.Sum64String(text)%32]+"}~assigned", text, assign.Encode(&a))
		if pipe.Len() == 1000 {
			if _, err := pipe.Exec(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		b.Fatal(err)
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
