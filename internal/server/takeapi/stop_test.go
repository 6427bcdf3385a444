package takeapi_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// A daemon stops while callers use all APIs. It answers all that it charged;
// only calls that come too late fail.
func TestStopAnswersAllThatItCharged(t *testing.T) {
	t.Parallel()
	const limit = 1_000_000
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("waits ", waits), func(t *testing.T) {
			var store bucket.Store
			d := servertest.Start(t, `
domain: api
descriptors:
  - {key: user, rate_limit: {algorithm: fixed_window, requests: 1000000, period: 365d}}
`, func(o *server.Options) { store, o.RemoteStore = o.Store, waits })
			request := servertest.Taking("user=x")
			body, err := protojson.Marshal(request)
			if err != nil {
				t.Fatal(err)
			}
			ctx := context.Background()
			var answered atomic.Int64
			ways := map[string]func() error{
				"Take": func() error {
					_, err := d.API().Take(ctx, request)
					return err
				},
				"TakeMany": func() error {
					_, err := d.API().TakeMany(ctx, &ratelimitv1.TakeManyRequest{Takes: []*ratelimitv1.TakeRequest{request}})
					return err
				},
				"HTTP": func() error {
					p, err := d.TryFetch("POST", "http", "/v1/take", strings.NewReader(string(body)))
					if err == nil && p.Code != 200 {
						return status.Errorf(codes.Internal, "%d %s", p.Code, p.Body)
					}
					if err != nil {
						return status.Error(codes.Unavailable, err.Error())
					}
					return nil
				},
			}
			var callers sync.WaitGroup
			for name, ask := range ways {
				for range 4 {
					callers.Go(func() {
						for {
							if err := ask(); err != nil {
								if status.Code(err) != codes.Unavailable {
									t.Errorf("%s: %v", name, err)
								}
								return
							}
							answered.Add(1)
						}
					})
				}
			}
			asynctest.Eventually(t, "many answers", func() bool { return answered.Load() > 500 })
			d.Stop <- 0
			d.Wait()
			callers.Wait()
			if used := limit - remainingOf(t, store, d); used != answered.Load() {
				t.Errorf("%d were charged, and %d answered", used, answered.Load())
			}
		})
	}
}
