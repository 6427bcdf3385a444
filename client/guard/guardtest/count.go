package guardtest

import (
	"slices"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/client/guard"
)

// countingFailures serves with a limit of three failed requests for each X-User.
func (s *suite[R, S, H]) countingFailures(t *testing.T) *server[S] {
	return s.serve(t, guard.Options[R, S, H]{
		Descriptors: by(s.Header("failed", "X-User")),
		CountIf:     func(status S) bool { return status != s.Allowed.Status },
	})
}

func (s *suite[R, S, H]) givesBackWhatDoesNotCount(t *testing.T) {
	server := s.countingFailures(t)
	for range 20 {
		is(t, server.send(t, "X-User: "+t.Name()), s.Allowed)
	}
}

func (s *suite[R, S, H]) countsWhatFails(t *testing.T) {
	for _, row := range []struct {
		name   string
		does   string
		status S
	}{
		{"a handler that fails", respondFailed, s.Failed},
		{"a handler that panics", respondPanic, s.Panicked},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := s.countingFailures(t)
			got := server.statuses(t, 4, Request{Headers: []string{"X-User: " + t.Name(), respondHeader + ": " + row.does}})
			if want := []S{row.status, row.status, row.status, s.Denied.Status}; !slices.Equal(got, want) {
				t.Errorf("found %v, want %v", got, want)
			}
		})
	}
}

// If a request were taken after its handler, all requests in parallel would reach
// the handler.
func (s *suite[R, S, H]) takesBeforeTheHandlerRuns(t *testing.T) {
	server := s.countingFailures(t)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { server.send(t, "X-User: "+t.Name(), respondHeader+": "+respondFailed) })
	}
	all.Wait()
	if n := server.served.Load(); n != 3 {
		t.Errorf("%d of 50 wrong guesses in parallel were tried, want 3", n)
	}
}
