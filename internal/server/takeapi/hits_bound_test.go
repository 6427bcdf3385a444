package takeapi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// A descriptor of few bytes may have many limits. What all of them take while the store
// decides is part of the memory that requests may take.
func TestHitsThatWaitForTheStoreAreBounded(t *testing.T) {
	t.Parallel()
	const descriptors, takes = 100, 12
	const memory, leastHit = 16 << 20, 1 << 10
	wide := new(ratelimitv1.TakeRequest)
	wide.Domain = "api"
	for i := range descriptors {
		wide.Descriptors = append(wide.Descriptors, servertest.Taking(fmt.Sprint("user=", i)).GetDescriptors()...)
	}
	type refused func(error)
	for name, ask := range map[string]func(*servertest.Daemon, refused){
		"in a call each": func(d *servertest.Daemon, refuse refused) {
			var all sync.WaitGroup
			for range takes {
				all.Go(func() {
					if _, err := d.API().Take(t.Context(), wide); err != nil {
						refuse(err)
					}
				})
			}
			all.Wait()
		},
		"two in a message": func(d *servertest.Daemon, refuse refused) {
			var all sync.WaitGroup
			for range takes / 2 {
				all.Go(func() {
					r := &ratelimitv1.TakeManyRequest{Takes: []*ratelimitv1.TakeRequest{wide, wide}}
					if _, err := d.API().TakeMany(t.Context(), r); err != nil {
						refuse(err)
						refuse(err)
					}
				})
			}
			all.Wait()
		},
		"in messages of a stream": func(d *servertest.Daemon, refuse refused) {
			var all sync.WaitGroup
			for range takes / 4 {
				all.Go(func() {
					s := d.Stream()
					if err := errors.Join(s.Send(servertest.Numbered(1, wide, wide, wide, wide)), s.CloseSend()); err != nil {
						t.Error(err)
					}
					results, err := readAll(s)
					if err != nil {
						t.Error(err)
					}
					for _, r := range results {
						if e := r.GetError(); e != nil {
							refuse(status.Error(codes.Code(e.GetCode()), e.GetMessage()))
						}
					}
				})
			}
			all.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var waiting, asked, allRefused atomic.Int64
			release := make(chan struct{})
			store := &servertest.FakeStore{OnTake: func(_ context.Context, hits []bucket.Hit, _ []bucket.Decision) error {
				asked.Add(1)
				waiting.Add(int64(len(hits)))
				<-release
				waiting.Add(-int64(len(hits)))
				return nil
			}}
			d := servertest.Start(t, longNames(), func(o *server.Options) {
				o.Store, o.RemoteStore, o.Requests.Memory = store, true, memory
				o.Many = &manyTaker{Store: store}
			})
			var done sync.WaitGroup
			done.Go(func() {
				ask(d, func(err error) {
					allRefused.Add(1)
					if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "request_memory") {
						t.Errorf("a take is refused with %v", err)
					}
				})
			})
			// Those for which there is no room wait for a second.
			last, since := int64(0), time.Now()
			asynctest.Eventually(t, "no more takes ask the store", func() bool {
				if n := asked.Load(); n != last || n == 0 {
					last, since = n, time.Now()
				}
				return time.Since(since) > 3*time.Second
			})
			// Connections that answer their calls may exceed the memory by a quarter.
			if held := waiting.Load() * leastHit; held == 0 || held > memory+memory/4 {
				t.Errorf("%d hits wait, which take %d bytes or more of %d", waiting.Load(), held, int64(memory))
			}
			close(release)
			done.Wait()
			if n := asked.Load() + allRefused.Load(); n != takes || allRefused.Load() == 0 {
				t.Errorf("%d takes have asked the store and %d are refused, of %d", asked.Load(), allRefused.Load(), takes)
			}
		})
	}
}
