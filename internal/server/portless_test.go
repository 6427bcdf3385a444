package server_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// portless returns a server that does not listen.
func portless(t testing.TB, limits string, change ...func(*server.Options)) *server.Server {
	t.Helper()
	o := servertest.NewOptions(t, limits, change...)
	o.GRPC.Address, o.HTTP.Address, o.Admin.Address = "", "", ""
	s, err := server.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // a server has goroutines before it runs
		stop := make(chan time.Duration, 1)
		stop <- 0
		if err := s.Run(stop); err != nil {
			t.Error(err)
		}
	})
	return s
}
