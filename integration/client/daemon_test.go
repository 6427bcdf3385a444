package client_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server"
)

// daemon is a server on the memory store, within this process, so that tests may
// change its options and have several share a store.
type daemon struct {
	// Address of its gRPC port.
	Address string

	stop  chan time.Duration
	ended chan struct{}
	once  sync.Once
}

// start runs a daemon on the limits until the test ends.
func start(t testing.TB, limits string, change ...func(*server.Options)) *daemon {
	t.Helper()
	return startOn(t, "127.0.0.1:0", newStore(t), limits, change...)
}

// newStore returns a store that several daemons may share.
func newStore(t testing.TB) bucket.Store {
	s := memstore.New(memstore.Options{MaxKeys: 100_000})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// startOn is start with an address and a store.
func startOn(t testing.TB, address string, store bucket.Store, limits string, change ...func(*server.Options)) *daemon {
	t.Helper()
	file := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(file, []byte(limits), 0o600); err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	live := limitsfile.NewLive(file, logger)
	if err := live.Reload(); err != nil {
		t.Fatal(err)
	}
	o := server.Options{
		GRPC:     server.GRPC{Address: address},
		Requests: server.Requests{Bounds: decide.Bounds{Descriptors: 100, Entries: 32, Bytes: 65536, Takes: 1000}, Refunds: true},
		Live:     live,
		Store:    store,
		Metrics:  prometheus.NewRegistry(),
		Log:      logger,
	}
	for _, c := range change {
		c(&o)
	}
	s, err := server.New(o)
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{Address: s.Address("grpc"), stop: make(chan time.Duration), ended: make(chan struct{})}
	go func() {
		defer close(d.ended)
		if err := s.Run(d.stop); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(d.Stop)
	return d
}

// Stop ends the daemon as SIGTERM does, and waits for its end.
func (d *daemon) Stop() {
	d.once.Do(func() { d.stop <- 0 })
	<-d.ended
}
