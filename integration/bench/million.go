package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// filled is what keys did to a daemon's memory.
type filled struct {
	keys int
	// heap are the live bytes of Go's heap that the keys brought, resident
	// those of the process, garbage and spare room included.
	heap, resident int64
}

// keysPerRequest is what a daemon takes in one request by default.
const keysPerRequest = 100

// fill takes once from each of n accounts.
func (d *daemon) fill(ctx context.Context, n int) (filled, error) {
	f := filled{keys: n}
	heap, err := d.heap(ctx)
	if err != nil {
		return f, err
	}
	size, err := resident(d.process.pid())
	if err != nil {
		return f, err
	}
	conn, err := grpc.NewClient(d.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return f, err
	}
	defer conn.Close()
	client := rlsv3.NewRateLimitServiceClient(conn)
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(16)
	for first := 0; first < n; first += keysPerRequest {
		all.Go(func() error {
			r := &rlsv3.RateLimitRequest{Domain: domain}
			for i := first; i < min(first+keysPerRequest, n); i++ {
				r.Descriptors = append(r.Descriptors, descriptor("account", value(i)))
			}
			_, err := client.ShouldRateLimit(ctx, r)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return f, err
	}
	after, err := d.heap(context.WithoutCancel(ctx))
	if err != nil {
		return f, err
	}
	sizeAfter, err := resident(d.process.pid())
	f.heap, f.resident = after-heap, sizeAfter-size
	return f, err
}

// heap returns the bytes of the daemon's heap that are in use, after a garbage
// collection.
func (d *daemon) heap(ctx context.Context) (int64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.admin+"/debug/pprof/heap?gc=1&debug=1", nil)
	if err != nil {
		return 0, err
	}
	page, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer page.Body.Close()
	lines := bufio.NewScanner(page.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if number, ok := strings.CutPrefix(lines.Text(), "# HeapAlloc = "); ok {
			return strconv.ParseInt(number, 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no HeapAlloc", r.URL)
}

// perKey is a key's share of so many bytes.
func (f filled) perKey(bytes int64) float64 { return float64(bytes) / float64(f.keys) }
