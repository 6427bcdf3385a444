package takeapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/heaptest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// ofAlgorithm takes from the limit of an algorithm: 4 in ten seconds, or 4 at
// once.
func ofAlgorithm(a bucket.Algorithm, value string, cost uint64) *ratelimitv1.TakeRequest {
	return servertest.Taking(fmt.Sprintf("%s=%s:%d", a, value, cost))
}

// No moment in a give-back fills a limit above full, moves a clock ahead, or
// changes another limit.
func TestHostileGiveBacksGainNothing(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.TakeLimits)
	for _, a := range buckettest.Rates() {
		other := ofAlgorithm(a, "other", 3)
		d.SendTake(other)
		random := rand.New(rand.NewPCG(1, uint64(a)))
		for range 300 {
			now := d.Clock.Micros()
			moments := []int64{0, 1, -1, now, -now, now + 1, now - 1, now + 1e6, now - 1e7, now + 3600e6, 1 << 53, -(1 << 53), random.Int64N(1 << 53)}
			costs := []uint64{0, 1, 4, 5, math.MaxUint32, math.MaxInt64, math.MaxUint64}
			_, err := d.API().GiveBack(t.Context(), &ratelimitv1.GiveBackRequest{
				Take:    ofAlgorithm(a, "x", costs[random.IntN(len(costs))]),
				TakenAt: []int64{moments[random.IntN(len(moments))]},
			})
			if err != nil {
				t.Fatalf("%s: %v", a, err)
			}
			r := d.SendTake(ofAlgorithm(a, "x", uint64(random.IntN(3))))
			if l := r.GetLimits()[0]; l.GetRemaining() > 4 || l.GetResetAfter().AsDuration() > 10*time.Second || l.GetRetryAfter().AsDuration() > 10*time.Second {
				t.Fatalf("%s: after a hostile give-back, %v", a, l)
			}
			d.Clock.Move(time.Duration(random.IntN(300)) * time.Millisecond)
		}
		// No clock is ahead: a take is back after a period.
		d.Clock.Move(20 * time.Second)
		d.SendTake(ofAlgorithm(a, "x", 4))
		d.Clock.Move(10 * time.Second)
		if r := d.SendTake(ofAlgorithm(a, "x", 4)); !r.GetAllowed() {
			t.Errorf("%s: a period later, %v", a, r)
		}
	}
}

// Requests with absurd numbers are refused or decided. They break nothing and
// leave nothing in memory.
func TestHostileTakesBreakNothing(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.TakeLimits)
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...int64) int64 { return from[random.IntN(len(from))] }
	for range 2000 {
		r := servertest.Taking(anyOf(random, "token_bucket=h", "gcra=h", "leaky_bucket=h", "fixed_window=h", "sliding_window=h", "sliding_log=h", "unknown=h", "paid=h"))
		r.Descriptors[0].Cost = proto.Uint64(uint64(pick(0, 1, 5, math.MaxInt64, -1, math.MinInt64, 1<<52, 1<<53)))
		r.Descriptors[0].Numbers = &ratelimitv1.Numbers{
			Requests: uint64(pick(0, 1, 1000, 1<<31, math.MaxUint32, 1<<52, -1)), Burst: uint64(pick(0, 0, 1, math.MaxUint32, 1<<52, -1)),
			Period: &durationpb.Duration{Seconds: pick(0, 1, 60, 31622400, 31622401, -1, math.MaxInt64, math.MinInt64), Nanos: int32(pick(0, 1e6, 1, -1, 999_000_000, math.MaxInt32, math.MinInt32))},
		}
		response, err := d.API().Take(t.Context(), r)
		switch {
		case status.Code(err) == codes.InvalidArgument && strings.Contains(err.Error(), "descriptors[0].numbers"):
		case err != nil:
			t.Fatalf("%v: %v", r, err)
		case response.GetLimits()[0].GetRemaining() > response.GetLimits()[0].GetCapacity():
			t.Fatalf("%v: %v", r, response)
		}
	}
	if r := d.Take("gcra=after"); !r.GetAllowed() {
		t.Errorf("after that, %v", r)
	}
}

func anyOf(random *rand.Rand, from ...string) string { return from[random.IntN(len(from))] }

// anotherConn opens another connection.
func anotherConn(t *testing.T, d *servertest.Daemon) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(d.Server.Address("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// Idle streams hold little: a caller can open thousands. The test is not
// parallel, because it measures the whole heap.
func TestIdleStreamsAreSmall(t *testing.T) {
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("waits ", waits), func(t *testing.T) {
			d := servertest.Start(t, servertest.TakeLimits, func(o *server.Options) { o.RemoteStore = waits })
			conn := anotherConn(t, d)
			const streams = 1000
			before := heaptest.InUse()
			for i := range streams {
				s, err := ratelimitv1.NewRateLimitServiceClient(conn).TakeStream(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Send(servertest.Numbered(uint64(i), servertest.Taking("unknown=x"))); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Recv(); err != nil { // the daemon has the stream now
					t.Fatal(err)
				}
			}
			each := (heaptest.InUse() - before) / streams // both ends of a stream
			t.Logf("%d bytes a stream", each)
			if each > 20<<10 {
				t.Errorf("an idle stream holds %d bytes", each)
			}
			_ = conn.Close()
			d.End()
		})
	}
}

// Streams that are cut, half-closed or left in the middle leave no goroutine
// behind. The test is not parallel, because it counts all goroutines.
func TestCutStreamsLeaveNothing(t *testing.T) {
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("waits ", waits), func(t *testing.T) {
			d := servertest.Start(t, servertest.TakeLimits, func(o *server.Options) { o.RemoteStore = waits })
			d.Take("unknown=x")
			before := runtime.NumGoroutine()
			conn := anotherConn(t, d)
			var callers sync.WaitGroup
			for i := range 200 {
				callers.Go(func() {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					s, err := ratelimitv1.NewRateLimitServiceClient(conn).TakeStream(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					for n := range 20 {
						// A stream that is cut may fail to send.
						if err := s.Send(servertest.Numbered(uint64(n), servertest.Taking("unknown=x"))); err != nil && !errors.Is(err, io.EOF) {
							t.Error(err)
						}
					}
					switch i % 3 {
					case 0: // half-closed and never read
						_ = s.CloseSend()
					case 1: // cut in the middle
						_, _ = s.Recv()
					case 2: // read to its end
						_ = s.CloseSend()
						if results, err := readAll(s); err != nil || len(results) != 20 {
							t.Errorf("%d results of 20, %v", len(results), err)
						}
					}
				})
			}
			callers.Wait()
			_ = conn.Close()
			asynctest.Eventually(t, "the goroutines of the streams end", func() bool { return runtime.NumGoroutine() <= before })
			d.End()
		})
	}
}

// The bytes in flight on a stream are bounded: large requests wait while the
// store does not answer.
func TestTakeStreamHoldsUpLargeRequests(t *testing.T) {
	t.Parallel()
	var store *gatedStore
	d := servertest.Start(t, servertest.TakeLimits, func(o *server.Options) {
		store = &gatedStore{Store: o.Store, gate: make(chan struct{})}
		o.Store, o.RemoteStore = store, true
	})
	s := d.Stream()
	const size, most = 60_000, 16 << 20
	large := servertest.Numbered(0, servertest.Taking("gcra=x", "unknown="+strings.Repeat("x", size)))
	var sent atomic.Int64
	var sender sync.WaitGroup
	sender.Go(func() {
		for s.Send(large) == nil {
			sent.Add(1)
		}
	})
	last, still := int64(-1), 0
	asynctest.Eventually(t, "the sender is held up", func() bool {
		if n := sent.Load(); n != last {
			last, still = n, 0
		} else if n > 0 {
			still++
		}
		return still > 60
	})
	if last*size > 2*most {
		t.Errorf("%d requests of %d bytes are in flight", last, size)
	}
	close(store.gate)
	// The stream goes on when they are answered.
	for range last + 10 {
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
		if sent.Load() > last+5 {
			break
		}
	}
	if sent.Load() <= last {
		t.Error("the sender is held up for ever")
	}
	_ = d.Conn.Close()
	sender.Wait()
}
