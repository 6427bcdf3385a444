package stream_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/client/internal/daemontest"
	"github.com/ratelimitd/ratelimitd/client/internal/stream"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// within has takes end soon, for daemons that do not answer. Others may take long on a
// busy machine.
func within(o *stream.Options) { o.Timeout = 3 * time.Second }

func clocked(c *asynctest.Clock) func(*stream.Options) {
	return func(o *stream.Options) { o.Now = c.Time }
}

func logged(b *asynctest.Buffer) func(*stream.Options) {
	return func(o *stream.Options) { o.Logger = slog.New(slog.NewTextHandler(b, nil)) }
}

func allowTake(context.Context, *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
	return &ratelimitv1.TakeResponse{Allowed: true}, nil
}

// allower returns a server that allows all takes of its streams.
func allower() *daemontest.Script {
	s := new(daemontest.Script)
	s.OnStream = s.AllowAll
	return s
}

func TestNewPoolRefusesAListOfAddressesWithAGap(t *testing.T) {
	t.Parallel()
	if p, err := stream.NewPool("a:1,,b:1", stream.Options{Now: time.Now}); p != nil || err == nil || !strings.Contains(err.Error(), "address 2 is empty") {
		t.Errorf("found %v", err)
	}
}

func TestDaemonsAreAskedInTurns(t *testing.T) {
	t.Parallel()
	var scripts [3]*daemontest.Script
	var addresses []string
	for i := range scripts {
		scripts[i] = allower()
		addresses = append(addresses, scripts[i].Serve(t))
	}
	p := connect(t, strings.Join(addresses, ", "))
	asynctest.Eventually(t, "three streams", func() bool { mustAllow(t, p); return p.Streams() == 3 })
	before := [3]int{}
	for i, s := range scripts {
		before[i] = s.Seen()
	}
	for range 30 {
		mustAllow(t, p)
	}
	for i, s := range scripts {
		if n := s.Seen() - before[i]; n != 10 {
			t.Errorf("daemon %d was asked %d of 30 times", i, n)
		}
	}
}

func TestTakesAreCallsWhereStreamsDoNotPass(t *testing.T) {
	t.Parallel()
	for name, onStream := range map[string]func(daemontest.Stream) error{
		"unimplemented": nil,
		"forbidden": func(stream daemontest.Stream) error {
			// A stream that ends unread has its take asked in a call.
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
			s := &daemontest.Script{OnStream: onStream, OnTake: allowTake}
			var log asynctest.Buffer
			p := connect(t, s.Serve(t), within, logged(&log))
			first, err := ask(t, p, "x")
			if isDecided := name == "unimplemented"; first != isDecided || (err == nil) != isDecided {
				t.Errorf("the first: %v, %v", first, err)
			}
			const more = 20
			for range more {
				mustAllow(t, p)
			}
			if n := p.Alone(); n < more {
				t.Errorf("%d calls", n)
			}
			if n := log.Count("streams do not pass"); n != 1 {
				t.Errorf("the log says so %d times:\n%s", n, log.String())
			}
		})
	}
}

func TestStreamsAreTriedAgainAfterARefusal(t *testing.T) {
	t.Parallel()
	s := &daemontest.Script{OnTake: allowTake}
	var pass atomic.Bool
	s.OnStream = func(stream daemontest.Stream) error {
		if !pass.Load() {
			return s.UnimplementedRateLimitServiceServer.TakeStream(stream)
		}
		return s.AllowAll(stream)
	}
	clock := asynctest.NewClock()
	p := connect(t, s.Serve(t), clocked(clock))
	for i, step := range []struct {
		passed time.Duration
		pass   bool
		alone  uint64
	}{
		{0, false, 1},
		{0, false, 2},
		{59 * time.Second, true, 3},
		{time.Second, true, 3},
		{0, true, 3},
	} {
		clock.Move(step.passed)
		pass.Store(step.pass)
		mustAllow(t, p)
		if n := p.Alone(); n != step.alone {
			t.Errorf("take %d: %d calls, want %d", i, n, step.alone)
		}
	}
}

// Where streams have passed, they are soon tried again.
func TestStreamsAreSoonTriedAgainIfTheyPassedBefore(t *testing.T) {
	t.Parallel()
	s, answers := &daemontest.Script{OnTake: allowTake}, new(daemontest.Script)
	var fails atomic.Bool
	s.OnStream = func(stream daemontest.Stream) error {
		for {
			m, err := stream.Recv()
			if err != nil {
				return nil
			}
			if fails.Load() {
				return status.Error(codes.Internal, "it restarts")
			}
			if err := answers.Allow(stream, m); err != nil {
				return err
			}
		}
	}
	clock := asynctest.NewClock()
	var log asynctest.Buffer
	p := connect(t, s.Serve(t), within, clocked(clock), logged(&log))
	mustAllow(t, p)
	fails.Store(true)
	asynctest.Eventually(t, "streams are given up", func() bool {
		_, _ = ask(t, p, "x")
		return log.Count("streams do not pass") > 0
	})
	fails.Store(false)
	alone := p.Alone()
	for _, step := range []struct {
		passed time.Duration
		alone  uint64
	}{{4 * time.Second, 1}, {time.Second, 1}} {
		clock.Move(step.passed)
		mustAllow(t, p)
		if n := p.Alone() - alone; n != step.alone {
			t.Errorf("%d calls, want %d", n, step.alone)
		}
	}
}

// While another daemon answers on a stream, silence does not mean that streams do
// not pass.
func TestSilentDaemonDoesNotEndStreams(t *testing.T) {
	t.Parallel()
	var isSilent atomic.Bool
	s, answers := new(daemontest.Script), new(daemontest.Script)
	s.OnStream = func(stream daemontest.Stream) error {
		opened := isSilent.Load()
		for {
			m, err := stream.Recv()
			if err != nil {
				return nil
			}
			switch {
			case !isSilent.Load():
				if err := answers.Allow(stream, m); err != nil {
					return err
				}
			case opened:
				s.See(len(m.GetTakes()))
			}
		}
	}
	var log asynctest.Buffer
	clock := asynctest.NewClock()
	p := connect(t, allower().Serve(t)+","+s.Serve(t), within, clocked(clock), logged(&log))
	asynctest.Eventually(t, "a stream to each", func() bool { mustAllow(t, p); return p.Streams() == 2 })
	isSilent.Store(true)
	asynctest.Eventually(t, "two streams to it are opened and given up", func() bool {
		clock.Move(11 * time.Second) // no connection is suspected any more
		_, _ = ask(t, p, "x")
		return s.Seen() >= 3
	})
	if n := log.Count("streams do not pass"); n > 0 {
		t.Error(log.String())
	}
}

// Streams to a daemon that hangs can still be opened, but only one take pays for it
// with its whole timeout.
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
				if err := s.Allow(stream, m); err != nil {
					return err
				}
			}
		}
	}
	p := connect(t, allower().Serve(t)+","+s.Serve(t), within, clocked(asynctest.NewClock()))
	failed := 0
	askOnce := func() int {
		if _, err := ask(t, p, "x"); err != nil {
			failed++
		}
		return failed
	}
	asynctest.Eventually(t, "a stream to each", func() bool { mustAllow(t, p); return p.Streams() == 2 })
	hangs.Store(true)
	asynctest.Eventually(t, "a take has no answer", func() bool { return askOnce() == 1 })
	before := opened.Load()
	asynctest.Eventually(t, "a stream to it is tried again", func() bool { return askOnce() > 1 || opened.Load() > before })
	for range 100 {
		if askOnce() > 1 {
			t.Fatal("another take was sent to the daemon that hangs")
		}
	}
}
