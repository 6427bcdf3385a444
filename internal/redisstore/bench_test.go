package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// BenchmarkTake measures a take of one hit on one of 100,000 keys, with so many
// callers at the same time. cpu-ns/op is the CPU time of this process alone, which
// depends less on other processes than the time that passes.
func BenchmarkTake(b *testing.B) {
	for _, callers := range []int{1, 100, 2000} {
		b.Run(fmt.Sprint(callers, " callers"), func(b *testing.B) {
			s := open(b, options(redisconn.Single, redistest.Single(b)))
			l := newLimit(b, bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 1e6, Period: time.Hour})
			hits := make([]bucket.Hit, 100_000)
			for i := range hits {
				hits[i] = hit(l, fmt.Sprint("user-", i), 1)
			}
			take(b, s, hits[0])
			b.ReportAllocs()
			var left atomic.Int64
			left.Store(int64(b.N))
			done := make(chan error, callers)
			before := cpuTime(b)
			b.ResetTimer()
			for c := range callers {
				go func() {
					random := rand.New(rand.NewPCG(uint64(c), 0))
					decisions := make([]bucket.Decision, 1)
					for left.Add(-1) >= 0 {
						i := random.IntN(len(hits))
						if err := s.Take(context.Background(), hits[i:i+1], decisions); err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
			}
			for range callers {
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// cpuTime returns the CPU time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkBytesOfAKey says how much of Redis's memory a state takes, with its key and its
// places in Redis's tables, once each of 100,000 users has taken from the limit.
func BenchmarkBytesOfAKey(b *testing.B) {
	const keys, callers = 100_000, 100
	for _, a := range bucket.Algorithms() {
		if a == bucket.Concurrency {
			continue // its state is as large as its number of holders
		}
		b.Run(a.String(), func(b *testing.B) {
			server := redistest.Start(b)
			s := open(b, options(redisconn.Single, server.Addr()))
			l := newLimit(b, bucket.Spec{Algorithm: a, Requests: 1000, Period: time.Hour})
			before := usedMemory(b, server.Addr())
			for b.Loop() {
				var group errgroup.Group
				for c := range callers {
					group.Go(func() error {
						decisions := make([]bucket.Decision, 1)
						for i := c; i < keys; i += callers {
							if err := s.Take(context.Background(), []bucket.Hit{hit(l, fmt.Sprint("user-", i), 1)}, decisions); err != nil {
								return err
							}
						}
						return nil
					})
				}
				if err := group.Wait(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(usedMemory(b, server.Addr())-before)/keys, "redis-B/key")
		})
	}
}

// usedMemory returns how much memory a Redis has allocated, in bytes.
func usedMemory(b *testing.B, addr string) int64 {
	b.Helper()
	info, err := redistest.Client(b, addr).Info(context.Background(), "memory").Result()
	if err != nil {
		b.Fatal(err)
	}
	_, after, _ := strings.Cut(info, "used_memory:")
	value, _, _ := strings.Cut(after, "\r\n")
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}
