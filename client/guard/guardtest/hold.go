package guardtest

import (
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/client/guard"
)

// inFlight returns the descriptors of requests of which two may be in flight.
func inFlight[R any](t testing.TB) []guard.Descriptor[R] {
	return []guard.Descriptor[R]{guard.InFlight("request", guard.Constant[R]("tenant", t.Name()))}
}

func (s *suite[R, S, H]) holdsASlotWhileTheHandlerRuns(t *testing.T) {
	for _, row := range []struct {
		name    string
		countIf func(S) bool
	}{
		{"whatever the status", nil},
		{"counting by the status", func(S) bool { return true }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := s.serve(t, guard.Options[R, S, H]{Descriptors: inFlight[R](t), CountIf: row.countIf})
			var late sync.WaitGroup
			ended := make(chan Response[S], 2)
			for range 2 {
				late.Go(func() { ended <- server.send(t, respondHeader+": "+respondLate) })
				<-server.entered
			}
			denied := server.send(t)
			is(t, denied, s.Denied)
			has(t, denied, "X-Ratelimit-Limit", "2")
			has(t, denied, "X-Ratelimit-Remaining", "0")
			has(t, denied, "Retry-After", "") // no one knows
			server.goOn <- struct{}{}
			is(t, <-ended, s.Allowed)
			is(t, server.send(t), s.Allowed)
			server.goOn <- struct{}{}
			late.Wait()
			if n := server.served.Load(); n != 3 {
				t.Errorf("%d of 4 reached the handler, want 3", n)
			}
		})
	}
}

func (s *suite[R, S, H]) freesTheSlotHoweverTheHandlerEnds(t *testing.T) {
	server := s.serve(t, guard.Options[R, S, H]{Descriptors: inFlight[R](t)})
	for _, row := range []struct {
		does   string
		status S
	}{
		{"", s.Allowed.Status}, {respondFailed, s.Failed}, {respondPanic, s.Panicked},
	} {
		for range 3 {
			if got := server.send(t, respondHeader+": "+row.does).Status; got != row.status {
				t.Errorf("a handler that does %q: found %v, want %v", row.does, got, row.status)
			}
		}
	}
}
