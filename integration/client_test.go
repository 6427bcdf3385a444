package integration

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

const clientLimits = `
domain: api
descriptors:
  - key: user
    rate_limit: {requests: 5, period: 1h}
  - key: even
    rate_limit: {requests: 50, period: 1s}
  - key: much
    rate_limit: {requests: 1000000000, period: 1h}
`

func clientDaemon(t testing.TB, args ...string) *daemon {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "api.yaml", clientLimits)
	return start(t, append([]string{"--limits-path", dir}, args...)...)
}

func connect(t testing.TB, target string, options ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(target, append([]client.Option{client.Timeout(20 * time.Second)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestClientTakesAndGivesBack(t *testing.T) {
	t.Parallel()
	c := connect(t, clientDaemon(t).grpc)
	r := client.Request{Domain: "api", Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E("user", "alice")}, Cost: 5}}}
	for round := range 3 {
		got, err := c.Take(t.Context(), r)
		if err != nil || !got.Allowed || got.Limits[0].Remaining != 0 {
			t.Fatalf("round %d: %+v, %v", round, got, err)
		}
		if ok, err := c.Allow(t.Context(), "api", client.E("user", "alice")); ok || err != nil {
			t.Errorf("round %d: over the limit: %v, %v", round, ok, err)
		}
		if err := c.GiveBack(t.Context(), got); err != nil {
			t.Error(err)
		}
	}
}

// 100 waiters of two clients share 50 a second.
func TestClientWaitsUnderContention(t *testing.T) {
	t.Parallel()
	d := clientDaemon(t)
	const waiters, ideal = 100, time.Second
	clients := []*client.Client{connect(t, d.grpc), connect(t, d.grpc)}
	best := time.Hour
	for try := 0; try < 10 && best > 2*ideal; try++ { // a busy machine is slow now and then
		r := client.Request{Domain: "api", Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E("even", fmt.Sprint(try))}}}}
		var all sync.WaitGroup
		begin := time.Now()
		for i := range waiters {
			all.Go(func() {
				if _, err := clients[i%2].Wait(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		best = min(best, time.Since(begin))
	}
	if best < ideal*9/10 || best > 2*ideal {
		t.Errorf("the last passed after %v; ideal is %v", best, ideal)
	}
}

// A daemon that stops loses no answer of a client that has another daemon.
func TestClientOutlivesADaemon(t *testing.T) {
	t.Parallel()
	a, b := clientDaemon(t), clientDaemon(t)
	c := connect(t, a.grpc+","+b.grpc)
	ask := func() {
		t.Helper()
		if ok, err := c.Allow(t.Context(), "api", client.E("much", "x")); !ok || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
	}
	asynctest.Eventually(t, "two streams", func() bool { ask(); return c.Stats().Streams == 2 })
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					ask()
				}
			}
		})
	}
	if code := b.stop(syscall.SIGINT); code != 0 {
		t.Errorf("the daemon's exit code is %d", code)
	}
	close(stop)
	callers.Wait()
	if s := c.Stats(); s.Failed() != 0 || s.Allowed == 0 {
		t.Errorf("%+v", s)
	}
}

// The benchmark measures the cost of asking for this process, next to a plain
// unary call of generated code. cpu-ns/op counts user and system time of all
// its threads; the daemon is another process.
func BenchmarkClient(b *testing.B) {
	d := clientDaemon(b)
	c := connect(b, d.grpc)
	conn, err := grpc.NewClient(d.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	plain := ratelimitv1.NewRateLimitServiceClient(conn)
	request := client.Request{Domain: "api", Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E("much", "x")}}}}
	ways := []struct {
		name string
		ask  func(context.Context) (bool, error)
	}{
		{"unary", func(ctx context.Context) (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			r, err := plain.Take(ctx, &ratelimitv1.TakeRequest{Domain: "api", Descriptors: []*ratelimitv1.Descriptor{
				{Entries: []*ratelimitv1.Entry{{Key: "much", Value: "x"}}},
			}})
			return r.GetAllowed(), err
		}},
		{"Allow", func(ctx context.Context) (bool, error) {
			return c.Allow(ctx, "api", client.E("much", "x"))
		}},
		{"Take", func(ctx context.Context) (bool, error) {
			r, err := c.Take(ctx, request)
			return err == nil && r.Allowed, err
		}},
	}
	for _, callers := range []int{1, 16, 64, 256} {
		for _, way := range ways {
			b.Run(fmt.Sprintf("callers=%d/%s", callers, way.name), func(b *testing.B) {
				b.ReportAllocs()
				before := usedByThisProcess(b)
				var left atomic.Int64
				left.Store(int64(b.N))
				var all sync.WaitGroup
				b.ResetTimer()
				for range callers {
					all.Go(func() {
						for left.Add(-1) >= 0 {
							if ok, err := way.ask(context.Background()); !ok || err != nil {
								b.Errorf("%v, %v", ok, err)
								return
							}
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64(usedByThisProcess(b)-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

func usedByThisProcess(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(os.NewSyscallError("getrusage", err))
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
