package client_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/internal/daemontest"
	"github.com/ratelimitd/ratelimitd/internal/asynctest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// silent reads everything and answers nothing.
func silent() *daemontest.Script {
	s := new(daemontest.Script)
	s.OnStream = s.ReadAll
	s.OnTake = func(ctx context.Context, _ *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s
}

func TestFailureChoiceDecidesWhenTheDaemonDoesNot(t *testing.T) {
	t.Parallel()
	quiet := silent().Serve(t)
	fails := new(daemontest.Script)
	fails.OnStream = func(stream daemontest.Stream) error {
		for {
			m, err := stream.Recv()
			if err != nil {
				return nil
			}
			failure := &ratelimitv1.Error{Code: uint32(codes.Unavailable), Message: "no store"}
			if err := daemontest.Answer(stream, m, &ratelimitv1.TakeResult{Result: &ratelimitv1.TakeResult_Error{Error: failure}}); err != nil {
				return err
			}
		}
	}
	storeless := fails.Serve(t)
	for name, at := range map[string]struct {
		target  string
		timeout time.Duration
		code    codes.Code
	}{
		"nobody listens":   {daemontest.Nobody(t), patience, codes.Unavailable},
		"no answer comes":  {quiet, 20 * time.Millisecond, codes.DeadlineExceeded},
		"the answer fails": {storeless, patience, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			local := client.FailLocal(client.Limit{Algorithm: client.TokenBucket, Requests: 2, Period: time.Hour})
			for _, choice := range []client.Failure{client.FailAllow(), client.FailDeny(), client.FailError(), local} {
				t.Run(choice.String(), func(t *testing.T) {
					t.Parallel()
					c := connect(t, at.target, client.Timeout(at.timeout), client.OnFailure(choice))
					got, err := c.Take(within(t), one("api", "user", "x"))
					if choice.String() == "error" {
						if got != nil || status.Code(err) != at.code {
							t.Errorf("Take: %+v, %v", got, err)
						}
					} else if err != nil || got.Allowed != (choice.String() != "deny") || !got.Degraded || status.Code(got.Failure) != at.code {
						t.Errorf("Take: %+v, %v", got, err)
					}
					ok, err := c.Allow(within(t), "api", client.E("user", "x"))
					if ok != (choice.String() == "allow" || choice.String() == "local") || (err != nil) != (choice.String() == "error") {
						t.Errorf("Allow: %v, %v", ok, err)
					}
					want := client.Stats{}
					switch choice.String() {
					case "allow":
						want.FailedAllowed = 2
					case "deny":
						want.FailedDenied = 2
					case "local":
						want.FailedLocal = 2
					case "error":
						want.FailedError = 2
					}
					s := c.Stats()
					s.Streams, s.Alone = 0, 0
					if s != want {
						t.Errorf("Stats: %+v", s)
					}
				})
			}
		})
	}
}

func TestFailLocalLimitsInThisProcess(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Nobody(t), client.OnFailure(client.FailLocal(client.Limit{Algorithm: client.FixedWindow, Requests: 3, Period: 366 * 24 * time.Hour})))
	r := one("api", "user", "x")
	r.Descriptors[0].Cost = 2
	first, err := c.Take(within(t), r)
	if err != nil || !first.Allowed || first.Limits[0].Remaining != 1 || first.Limits[0].Algorithm != client.FixedWindow {
		t.Fatal(first, err)
	}
	got, err := c.Take(within(t), r)
	if err != nil || got.Allowed || got.Denier() == nil || got.RetryAfter <= 0 {
		t.Errorf("over the limit: %+v, %v", got, err)
	}
	if got, err := c.Take(within(t), one("api", "user", "y")); err != nil || !got.Allowed {
		t.Errorf("another user: %+v, %v", got, err)
	}
	if err := c.GiveBack(within(t), first); err != nil {
		t.Error(err)
	}
	if got, err := c.Take(within(t), r); err != nil || !got.Allowed {
		t.Errorf("after a give-back: %+v, %v", got, err)
	}
}

func TestFailureChoiceOfARequestWins(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Nobody(t), client.OnFailure(client.FailAllow()))
	r := one("api", "user", "x")
	r.OnFailure = client.FailDeny()
	if got, err := c.Take(within(t), r); err != nil || got.Allowed {
		t.Error(got, err)
	}
}

// A request that was under way when its stream broke may have been decided.
func TestRequestWithAnUnknownOutcomeIsNotSentAgain(t *testing.T) {
	t.Parallel()
	s := silent()
	s.OnStream = func(stream daemontest.Stream) error {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		s.See(len(m.GetTakes()))
		return status.Error(codes.Unavailable, "upstream reset") // proxies say the same
	}
	address := s.Serve(t)
	c := connect(t, address, client.OnFailure(client.FailError()))
	if ok, err := c.Allow(within(t), "api", client.E("user", "x")); ok || status.Code(errors.Unwrap(err)) == codes.OK {
		t.Error(ok, err)
	}
	if n := s.Seen(); n != 1 {
		t.Errorf("it was sent %d times", n)
	}
}

func TestRequestThatAStoppingDaemonDidNotReadIsAskedAgain(t *testing.T) {
	t.Parallel()
	s := new(daemontest.Script)
	var streams atomic.Int64
	s.OnStream = func(stream daemontest.Stream) error {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		if streams.Add(1) > 1 {
			if err := s.Allow(stream, m); err != nil {
				return err
			}
			return s.AllowAll(stream)
		}
		stream.SetTrailer(metadata.Pairs("ratelimit-drained", "true"))
		return status.Error(codes.Unavailable, "stopping")
	}
	address := s.Serve(t)
	c := connect(t, address)
	if ok, err := c.Allow(within(t), "api", client.E("user", "x")); !ok || err != nil {
		t.Error(ok, err)
	}
	if n := s.Seen(); n != 1 {
		t.Errorf("it was answered %d times", n)
	}
}

func TestRequestsThatWereNotSentSurviveTheirStream(t *testing.T) {
	t.Parallel()
	s := new(daemontest.Script)
	var streams atomic.Int64
	stuck, end := make(chan struct{}), make(chan struct{})
	s.OnStream = func(stream daemontest.Stream) error {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		if streams.Add(1) > 1 {
			if err := s.Allow(stream, m); err != nil {
				return err
			}
			return s.AllowAll(stream)
		}
		close(stuck) // it reads no more, so flow control holds up the rest
		<-end
		return status.Error(codes.Unavailable, "gone")
	}
	address := s.Serve(t)
	c := connect(t, address)
	value := strings.Repeat("x", 12<<10)
	const callers = 60 // 720 KiB; a connection takes 64 of them in advance
	var begun, all sync.WaitGroup
	var passed, failed atomic.Int64
	for range callers {
		begun.Add(1)
		all.Go(func() {
			begun.Done()
			if ok, err := c.Allow(context.Background(), "api", client.E("user", value)); ok && err == nil {
				passed.Add(1)
			} else {
				failed.Add(1)
			}
		})
	}
	<-stuck
	begun.Wait()
	time.Sleep(100 * time.Millisecond) // so that most wait for this stream; the others pass on the next one
	close(end)
	all.Wait()
	if passed.Load() < callers/2 || failed.Load() == 0 || s.Seen() != int(passed.Load()) {
		t.Errorf("%d passed, %d failed, %d were answered", passed.Load(), failed.Load(), s.Seen())
	}
}

// One of two daemons stops, and another starts in its place.
func TestRollingRestartFailsNoRequest(t *testing.T) {
	t.Parallel()
	store := daemontest.NewStore(t)
	a, b := daemontest.StartOn(t, "127.0.0.1:0", store, limits), daemontest.StartOn(t, "127.0.0.1:0", store, limits)
	c := connect(t, a.Address+","+b.Address, client.OnFailure(client.FailError()))
	asynctest.Eventually(t, "two streams", func() bool {
		_, err := c.Allow(within(t), "api", client.E("user", "x"))
		return err == nil && c.Stats().Streams == 2
	})
	stop := make(chan struct{})
	var callers sync.WaitGroup
	var answered atomic.Int64
	for range 8 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := c.Allow(context.Background(), "api", client.E("much", "x")); err != nil {
					t.Error(err)
				}
				answered.Add(1)
			}
		})
	}
	more := func() {
		t.Helper()
		from := answered.Load()
		asynctest.Eventually(t, "more answers", func() bool { return answered.Load() > from+200 })
	}
	more()
	b.Stop()
	more()
	daemontest.StartOn(t, b.Address, store, limits)
	asynctest.Eventually(t, "two streams again", func() bool { return c.Stats().Streams == 2 })
	more()
	close(stop)
	callers.Wait()
	got, err := c.Take(within(t), client.Request{Domain: "api", Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E("much", "x")}, Peek: true}}})
	if err != nil {
		t.Fatal(err)
	}
	// The limit refills by 278 in a second.
	if used := 1_000_000 - int64(got.Limits[0].Remaining); used > answered.Load() {
		t.Errorf("%d were taken for %d answers", used, answered.Load())
	}
}

func TestRequestsAreCallsWhereStreamsDoNotPass(t *testing.T) {
	t.Parallel()
	for name, stream := range map[string]func(daemontest.Stream) error{
		"unimplemented": nil,
		"forbidden": func(stream daemontest.Stream) error {
			// A stream that ends unread has its request asked in a call.
			if _, err := stream.Recv(); err != nil {
				return err
			}
			return status.Error(codes.Internal, "no streams here")
		},
		"no answer comes": func(stream daemontest.Stream) error {
			<-stream.Context().Done()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &daemontest.Script{OnStream: stream}
			s.OnTake = func(context.Context, *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
				return &ratelimitv1.TakeResponse{Allowed: true}, nil
			}
			address := s.Serve(t)
			var log asynctest.Buffer
			c := connect(t, address, client.Timeout(time.Second), client.OnFailure(client.FailDeny()), client.Logger(slog.New(slog.NewTextHandler(&log, nil))))
			first, err := c.Allow(within(t), "api", client.E("user", "x"))
			if err != nil || first != (name == "unimplemented") {
				t.Errorf("the first: %v, %v", first, err)
			}
			const more = 20
			for range more {
				if ok, err := c.Allow(within(t), "api", client.E("user", "x")); !ok || err != nil {
					t.Error(ok, err)
				}
			}
			if n := c.Stats().Alone; n < more {
				t.Errorf("%d calls", n)
			}
			if n := log.Count("streams do not pass"); n != 1 {
				t.Errorf("the log says so %d times:\n%s", n, log.String())
			}
		})
	}
}

// While another daemon answers on a stream, silence does not mean that streams do
// not pass.
func TestSilentDaemonDoesNotEndStreams(t *testing.T) {
	t.Parallel()
	var isSilent atomic.Bool
	s := new(daemontest.Script)
	s.OnStream = func(stream daemontest.Stream) error {
		opened := isSilent.Load()
		for {
			m, err := stream.Recv()
			if err != nil {
				return nil
			}
			switch {
			case !isSilent.Load():
				if err := new(daemontest.Script).Allow(stream, m); err != nil {
					return err
				}
			case opened:
				s.See(len(m.GetTakes()))
			}
		}
	}
	freezes := s.Serve(t)
	var log asynctest.Buffer
	c := connect(t, daemontest.Start(t, limits).Address+","+freezes, client.Timeout(time.Second),
		client.OnFailure(client.FailDeny()), client.Logger(slog.New(slog.NewTextHandler(&log, nil))))
	ask := func() {
		if _, err := c.Allow(within(t), "api", client.E("much", "x")); err != nil {
			t.Error(err)
		}
	}
	asynctest.Eventually(t, "a stream to each", func() bool { ask(); return c.Stats().Streams == 2 })
	isSilent.Store(true)
	asynctest.Eventually(t, "two streams to it are opened and given up", func() bool { c.EndSuspicions(); ask(); return s.Seen() >= 3 })
	if strings.Contains(log.String(), "streams do not pass") {
		t.Error(log.String())
	}
}

// Streams to a daemon that hangs can still be opened, but only one request pays
// for it with its whole timeout.
func TestHangingDaemonIsLeftAlone(t *testing.T) {
	t.Parallel()
	var hangs atomic.Bool
	var opened atomic.Int64
	s := new(daemontest.Script)
	s.OnStream = func(stream daemontest.Stream) error {
		if hangs.Load() {
			opened.Add(1)
		}
		for {
			m, err := stream.Recv()
			if err != nil {
				return nil
			}
			if !hangs.Load() {
				if err := new(daemontest.Script).Allow(stream, m); err != nil {
					return err
				}
			}
		}
	}
	hanging := s.Serve(t)
	c := connect(t, daemontest.Start(t, limits).Address+","+hanging, client.Timeout(time.Second), client.OnFailure(client.FailDeny()))
	ask := func() uint64 {
		if _, err := c.Allow(within(t), "api", client.E("much", "x")); err != nil {
			t.Error(err)
		}
		return c.Stats().Failed()
	}
	asynctest.Eventually(t, "a stream to each", func() bool { ask(); return c.Stats().Streams == 2 })
	hangs.Store(true)
	asynctest.Eventually(t, "a request has no answer", func() bool { return ask() == 1 })
	before := opened.Load()
	asynctest.Eventually(t, "a stream to it is tried again", func() bool { return ask() > 1 || opened.Load() > before })
	for range 100 {
		if ask() > 1 {
			t.Fatal("another request was sent to the daemon that hangs")
		}
	}
}

func TestStreamsAreTriedAgainAfterARefusal(t *testing.T) {
	t.Parallel()
	s := new(daemontest.Script)
	s.OnTake = func(context.Context, *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
		return &ratelimitv1.TakeResponse{Allowed: true}, nil
	}
	var pass atomic.Bool
	s.OnStream = func(stream daemontest.Stream) error {
		if !pass.Load() {
			return s.UnimplementedRateLimitServiceServer.TakeStream(stream)
		}
		return s.AllowAll(stream)
	}
	address := s.Serve(t)
	c := connect(t, address)
	ask := func(alone uint64) {
		t.Helper()
		if ok, err := c.Allow(within(t), "api", client.E("user", "x")); !ok || err != nil {
			t.Error(ok, err)
		}
		if n := c.Stats().Alone; n != alone {
			t.Errorf("%d calls, want %d", n, alone)
		}
	}
	ask(1)
	ask(2)
	pass.Store(true)
	ask(3)
	c.EndRefusal()
	ask(3)
	ask(3)
}

func TestLogTellsWhenFailuresBeginAndEnd(t *testing.T) {
	t.Parallel()
	address := daemontest.Nobody(t)
	var log asynctest.Buffer
	c := connect(t, address, client.OnFailure(client.FailAllow()), client.Logger(slog.New(slog.NewTextHandler(&log, nil))),
		client.DialOptions(grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second})))
	for range 10 {
		if ok, err := c.Allow(within(t), "api", client.E("user", "x")); !ok || err != nil {
			t.Error(ok, err)
		}
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "no answer from ratelimitd") || !strings.Contains(text, "deciding=allow") {
		t.Errorf("the log of 10 failures:\n%s", text)
	}
	daemontest.StartOn(t, address, daemontest.NewStore(t), limits)
	asynctest.Eventually(t, "an answer", func() bool {
		got, err := c.Take(within(t), one("api", "user", "x"))
		return err == nil && got.Failure == nil
	})
	if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "answers again") {
		t.Errorf("the log of an answer:\n%s", text)
	}
}
