package stream_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/client/internal/daemontest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

func TestTakeGetsTheResultOfItsNumber(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		result *ratelimitv1.TakeResult
		code   codes.Code
		text   string
	}{
		"a response": {&ratelimitv1.TakeResult{Result: &ratelimitv1.TakeResult_Response{
			Response: &ratelimitv1.TakeResponse{Allowed: true},
		}}, codes.OK, ""},
		"an error": {&ratelimitv1.TakeResult{Result: &ratelimitv1.TakeResult_Error{
			Error: &ratelimitv1.Error{Code: uint32(codes.InvalidArgument), Message: "no such thing"},
		}}, codes.InvalidArgument, "no such thing"},
		"nothing": {&ratelimitv1.TakeResult{}, codes.Unknown, "holds no result"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := new(daemontest.Script)
			s.OnStream = func(stream daemontest.Stream) error {
				m, err := stream.Recv()
				if err != nil {
					return nil
				}
				// Another number has no take, and changes nothing.
				stray := &ratelimitv1.TakeStreamRequest{Takes: []*ratelimitv1.NumberedTake{{Number: 1 << 40}}}
				if err := s.Allow(stream, stray); err != nil {
					return err
				}
				if err := daemontest.Answer(stream, m, test.result); err != nil {
					return err
				}
				return s.ReadAll(stream)
			}
			ok, err := ask(t, connect(t, s.Serve(t)), "x")
			if ok != (test.code == codes.OK) || status.Code(err) != test.code {
				t.Errorf("found %v, %v", ok, err)
			}
			if err != nil && !strings.Contains(err.Error(), test.text) {
				t.Errorf("want an error with %q, got %v", test.text, err)
			}
		})
	}
}

// A take that was under way when its stream broke may have been decided.
func TestTakeWithAnUnknownOutcomeIsNotSentAgain(t *testing.T) {
	t.Parallel()
	s := new(daemontest.Script)
	s.OnStream = func(stream daemontest.Stream) error {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		s.See(len(m.GetTakes()))
		return status.Error(codes.Unavailable, "upstream reset") // proxies say the same
	}
	if ok, err := ask(t, connect(t, s.Serve(t)), "x"); ok || status.Code(err) == codes.OK {
		t.Error(ok, err)
	}
	if n := s.Seen(); n != 1 {
		t.Errorf("it was sent %d times", n)
	}
}

func TestTakeThatAStoppingDaemonDidNotReadIsAskedAgain(t *testing.T) {
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
	mustAllow(t, connect(t, s.Serve(t)))
	if n := s.Seen(); n != 1 {
		t.Errorf("it was answered %d times", n)
	}
}

func TestTakesThatWereNotSentSurviveTheirStream(t *testing.T) {
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
	p := connect(t, s.Serve(t))
	value := strings.Repeat("x", 12<<10)
	const callers = 60 // 720 KiB; a connection takes 64 of them in advance
	var begun, all sync.WaitGroup
	var passed, failed atomic.Int64
	for range callers {
		begun.Add(1)
		all.Go(func() {
			begun.Done()
			if ok, err := ask(t, p, value); ok && err == nil {
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

// A daemon that reads no more holds up takes. Those that give up meanwhile are not
// sent when it reads on.
func TestTakesThatGaveUpAreNotSent(t *testing.T) {
	t.Parallel()
	s := new(daemontest.Script)
	stuck, resume := make(chan struct{}), make(chan struct{})
	s.OnStream = func(stream daemontest.Stream) error {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		if err := s.Allow(stream, m); err != nil {
			return err
		}
		close(stuck)
		<-resume
		return s.AllowAll(stream)
	}
	p := connect(t, s.Serve(t))
	mustAllow(t, p)
	<-stuck
	value := strings.Repeat("x", 12<<10)
	const callers = 400 // 4.8 MiB; a connection takes 64 KiB of them in advance
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			if ok, err := askUntil(ctx, t, p, value); ok || !errors.Is(err, context.DeadlineExceeded) {
				t.Error(ok, err)
			}
		})
	}
	all.Wait()
	close(resume)
	mustAllow(t, p)
	if n := s.Seen(); n > callers/4 {
		t.Errorf("%d of %d that gave up were sent", n, callers)
	}
	if n := p.Streams(); n != 1 {
		t.Errorf("%d streams", n)
	}
}
