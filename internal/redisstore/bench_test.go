package redisstore_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

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
