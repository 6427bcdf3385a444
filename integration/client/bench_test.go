package client_test

import (
	"context"
	"testing"

	"github.com/ratelimitd/ratelimitd/client"
)

// Each operation is one decision of a daemon within this process, so that time and
// allocations include those of the daemon.

func BenchmarkAllow(b *testing.B) {
	c := benchmarked(b)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Allow(ctx, "api", client.E("much", "x")); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAllowInParallel(b *testing.B) {
	c := benchmarked(b)
	ctx := context.Background()
	b.ReportAllocs()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.Allow(ctx, "api", client.E("much", "x")); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkTake(b *testing.B) {
	c := benchmarked(b)
	ctx := context.Background()
	r := client.Request{Domain: "api", Descriptors: []client.Descriptor{
		{Entries: []client.Entry{client.E("much", "x")}},
		{Entries: []client.Entry{client.E("named", "x")}, Cost: 2},
	}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Take(ctx, r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWait(b *testing.B) {
	c := benchmarked(b)
	ctx := context.Background()
	r := one("free", "any", "x")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Wait(ctx, r); err != nil {
			b.Fatal(err)
		}
	}
}

// benchmarked returns a client whose stream is open.
func benchmarked(b *testing.B) *client.Client {
	b.Helper()
	c := connect(b, start(b, limits).Address)
	if _, err := c.Allow(within(b), "api", client.E("much", "x")); err != nil {
		b.Fatal(err)
	}
	return c
}
