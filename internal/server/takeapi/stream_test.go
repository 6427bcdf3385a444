package takeapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// readAll reads until the stream ends. It returns the results by their
// numbers, and the error at the end.
func readAll(s ratelimitv1.RateLimitService_TakeStreamClient) (map[uint64]*ratelimitv1.TakeResult, error) {
	results := make(map[uint64]*ratelimitv1.TakeResult)
	for {
		r, err := s.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return results, err
		}
		for _, n := range r.GetResults() {
			if results[n.GetNumber()] != nil {
				return results, fmt.Errorf("number %d is answered twice", n.GetNumber())
			}
			results[n.GetNumber()] = n.GetResult()
		}
	}
}

// A client need not know the settings: under the narrowest bounds its largest
// message is read.
func TestTakeStreamReadsLargeMessagesUnderNarrowBounds(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.TakeLimits, func(o *server.Options) {
		o.Requests.Bounds = decide.Bounds{Descriptors: 1, Entries: 1, Bytes: 1 << 10, Takes: 128}
	})
	var takes []*ratelimitv1.TakeRequest
	for range 128 {
		takes = append(takes, servertest.Taking("gcra="+strings.Repeat("x", 100)))
	}
	message := servertest.Numbered(1, takes...)
	if size := proto.Size(message); size < 15<<10 || size > 16<<10 {
		t.Fatalf("the message has %d bytes; wanted: nearly 16 KiB", size)
	}
	s := d.Stream()
	if err := s.Send(message); err != nil {
		t.Fatal(err)
	}
	_ = s.CloseSend()
	results, err := readAll(s)
	if err != nil || len(results) != len(takes) {
		t.Fatalf("%d results of %d, %v", len(results), len(takes), err)
	}
	for number, r := range results {
		if r.GetResponse() == nil {
			t.Errorf("request %d: %v", number, r)
		}
	}
}

func TestTakeStreamAnswersEachTake(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("waits ", waits), func(t *testing.T) {
			t.Parallel()
			d := servertest.Start(t, servertest.TakeLimits, func(o *server.Options) { o.RemoteStore = waits })
			s := d.Stream()
			const messages, each = 50, 40
			go func() {
				for i := range messages {
					var takes []*ratelimitv1.TakeRequest
					for range each - 1 {
						takes = append(takes, servertest.Taking("gcra=x"))
					}
					takes = append(takes, servertest.Taking("unknown=x"))
					if i == 7 {
						takes[3] = &ratelimitv1.TakeRequest{}
					}
					if err := s.Send(servertest.Numbered(uint64(i*each), takes...)); err != nil {
						t.Error(err)
					}
				}
				_ = s.CloseSend()
			}()
			results, err := readAll(s)
			if err != nil || len(results) != messages*each {
				t.Fatalf("%d results of %d, %v", len(results), messages*each, err)
			}
			allowed := 0
			for n, r := range results {
				switch {
				case n == 7*each+3:
					if codes.Code(r.GetError().GetCode()) != codes.InvalidArgument {
						t.Errorf("the bad one got %v", r)
					}
				case n%each == each-1:
					if !r.GetResponse().GetAllowed() {
						t.Errorf("number %d got %v", n, r)
					}
				case r.GetResponse().GetAllowed():
					allowed++
				}
			}
			if allowed != 4 {
				t.Errorf("%d of 4 were allowed", allowed)
			}
		})
	}
}

func TestTakeStreamRefusesTooManyTakes(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.TakeLimits, func(o *server.Options) { o.Requests.Bounds.Takes = 3 })
	s := d.Stream()
	if err := s.Send(servertest.Numbered(0, servertest.Taking("gcra=x"), servertest.Taking("gcra=x"), servertest.Taking("gcra=x"), servertest.Taking("gcra=x"))); err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(s); status.Code(err) != codes.InvalidArgument {
		t.Errorf("four takes of three: %v", err)
	}
	if r := d.Take("gcra=x:0"); r.GetLimits()[0].GetRemaining() != 4 {
		t.Errorf("a message that was refused was charged: %v", r)
	}
}

// gatedStore decides when a test opens its gate.
type gatedStore struct {
	bucket.Store
	gate    chan struct{}
	entered atomic.Int64
}

func (g *gatedStore) Take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	g.entered.Add(1)
	select {
	case <-g.gate:
	case <-ctx.Done():
		return ctx.Err()
	}
	return g.Store.Take(ctx, hits, decisions)
}

// A daemon that stops answers all takes that it has read, and decides no
// others.
func TestTakeStreamLosesNothingAtStop(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("waits ", waits), func(t *testing.T) {
			t.Parallel()
			var store *gatedStore
			d := servertest.Run(t, `
domain: api
descriptors:
  - {key: user, rate_limit: {algorithm: fixed_window, requests: 1000000, period: 365d}}
`, func(o *server.Options) {
				store = &gatedStore{Store: o.Store, gate: make(chan struct{})}
				o.Store, o.RemoteStore = store, waits
				o.Health.Readiness = server.Always
			})
			asynctest.Eventually(t, "SERVING", func() bool { return d.Check("") == "SERVING" })
			s := d.Stream()
			var sent atomic.Uint64
			var sender sync.WaitGroup
			sender.Go(func() {
				for s.Send(servertest.Numbered(sent.Load(), servertest.Taking("user=x"), servertest.Taking("user=x"))) == nil {
					sent.Add(2)
				}
			})
			asynctest.Eventually(t, "requests in hand", func() bool { return store.entered.Load() > 0 })
			close(store.gate) // it decides at once from now on
			asynctest.Eventually(t, "many requests", func() bool { return sent.Load() > 100 })
			d.Stop <- 0
			results, err := readAll(s)
			if status.Code(err) != codes.Unavailable {
				t.Errorf("the stream ended with %v, want UNAVAILABLE", err)
			}
			sender.Wait()
			d.Wait()
			used := 1_000_000 - remainingOf(t, store.Store, d)
			if int64(len(results)) != used {
				t.Errorf("%d answers came, and %d were charged", len(results), used)
			}
		})
	}
}

// remainingOf asks the store itself for the rest of the only limit.
func remainingOf(t *testing.T, s bucket.Store, d *servertest.Daemon) int64 {
	t.Helper()
	entries := []bucket.Entry{{Key: "user", Value: "x"}}
	l := d.Live.Rules().Domain("api").Match(entries).Limits[0]
	subject := bucket.AppendSubject(nil, "api", entries)
	decisions := make([]bucket.Decision, 1)
	hit := bucket.Hit{Limit: l, Key: l.AppendKey(nil, subject), Place: subject}
	if err := s.Check(t.Context(), []bucket.Hit{hit}, decisions); err != nil {
		t.Fatal(err)
	}
	return decisions[0].Remaining
}

// An old connection is cut, but no stream on it loses an answer.
func TestTakeStreamEndsBeforeItsConnection(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("waits ", waits), func(t *testing.T) {
			t.Parallel()
			d := servertest.Start(t, servertest.TakeLimits, func(o *server.Options) {
				// A stream on an aged connection has half of the grace to end, which is
				// short on a busy machine.
				o.RemoteStore, o.GRPC.ConnectionAge, o.GRPC.ConnectionAgeGrace = waits, time.Second, 3*time.Second
			})
			// The first stream begins with the connection. The others begin on the aged
			// connection or on the next.
			for range 4 {
				s := d.Stream()
				var sender sync.WaitGroup
				sender.Go(func() {
					for s.Send(servertest.Numbered(0, servertest.Taking("unknown=x"))) == nil {
						time.Sleep(time.Millisecond)
					}
				})
				for {
					if _, err := s.Recv(); err != nil {
						if status.Code(err) != codes.Unavailable || s.Trailer().Get("ratelimit-drained") == nil {
							t.Errorf("a stream ended with %v, %v", err, s.Trailer())
						}
						break
					}
				}
				sender.Wait()
			}
		})
	}
}

// A caller that does not read is held back; its answers do not pile up in memory.
func TestTakeStreamHoldsUpASlowReader(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("waits ", waits), func(t *testing.T) {
			t.Parallel()
			d := servertest.Start(t, servertest.TakeLimits, func(o *server.Options) { o.RemoteStore = waits })
			s := d.Stream()
			var sent atomic.Int64
			var sender sync.WaitGroup
			sender.Go(func() {
				many := make([]*ratelimitv1.TakeRequest, 1000)
				for i := range many {
					many[i] = servertest.Taking("several=x")
				}
				for range 2000 {
					if s.Send(servertest.Numbered(0, many...)) != nil {
						return
					}
					sent.Add(1)
				}
			})
			// The stream stands still long before two million answers.
			last, still := int64(-1), 0
			asynctest.Eventually(t, "the sender is held up", func() bool {
				if n := sent.Load(); n != last {
					last, still = n, 0
				} else if n > 0 {
					still++
				}
				time.Sleep(10 * time.Millisecond)
				return still > 30
			})
			if last > 1000 {
				t.Errorf("%d messages of 1000 were taken without a reader", last)
			}
			// Other callers are served.
			if r := d.Take("gcra=other"); !r.GetAllowed() {
				t.Errorf("beside a slow reader, got %v", r)
			}
			// When the caller reads, the stream goes on.
			for sent.Load() <= last+5 {
				if _, err := s.Recv(); err != nil {
					t.Fatal(err)
				}
			}
			_ = d.Conn.Close()
			sender.Wait()
		})
	}
}

func TestTakeStreamOutlivesAPanic(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("waits ", waits), func(t *testing.T) {
			d := servertest.Start(t, servertest.TakeLimits, func(o *server.Options) {
				o.RemoteStore = waits
				inner := o.Store
				o.Store = &servertest.FakeStore{OnTake: func(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
					if hits[0].Cost == 3 {
						panic("in a store")
					}
					return inner.Take(ctx, hits, decisions)
				}}
			})
			s := d.Stream()
			if err := s.Send(servertest.Numbered(1, servertest.Taking("gcra=x:3"), servertest.Taking("gcra=x"))); err != nil {
				t.Fatal(err)
			}
			_ = s.CloseSend()
			results, err := readAll(s)
			if err != nil || codes.Code(results[1].GetError().GetCode()) != codes.Internal || !results[2].GetResponse().GetAllowed() {
				t.Errorf("got %v, %v", results, err)
			}
			if r := d.Take("gcra=x"); !r.GetAllowed() {
				t.Errorf("after a panic, got %v", r)
			}
		})
	}
}
