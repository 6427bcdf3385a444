package decide_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// rig is a decider on the limits of one file, in memory, whose clock stands still.
type rig struct {
	*decide.Decider
	t     testing.TB
	clock atomic.Int64
	table *assign.Table
	store *memstore.Store
	live  *rules.Live
}

// started is when a rig's clock begins.
var started = time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)

func newRig(t testing.TB, limits string, change ...func(*decide.Options)) *rig {
	t.Helper()
	r := &rig{t: t, table: assign.NewTable()}
	r.clock.Store(started.UnixMicro())
	r.live = limitsfile.NewLive(filetest.Write(t, t.TempDir(), "limits.yaml", limits), nil)
	if err := r.live.Reload(); err != nil {
		t.Fatal(err)
	}
	r.store = memstore.New(memstore.Options{MaxKeys: 1e5, Clock: r.clock.Load})
	t.Cleanup(func() { r.store.Close() })
	o := decide.Options{
		Live: r.live, Store: r.store, Refuses: func() error { return nil }, Assigned: r.table, Now: r.clock.Load,
		Bounds:         decide.Bounds{Descriptors: 100, Entries: 32, Bytes: 1 << 20},
		UnknownDomains: new(atomic.Uint64),
		OwnLimits:      decide.NewResults(prometheus.NewCounterVec(prometheus.CounterOpts{Name: "own"}, []string{"result"})),
	}
	for _, f := range change {
		f(&o)
	}
	r.Decider = decide.New(o)
	return r
}

// entries reads "key=value,key=value".
func entries(text string) (all []bucket.Entry) {
	for _, part := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		all = append(all, bucket.Entry{Key: key, Value: value})
	}
	return all
}

// asking returns a descriptor with this cost.
func asking(text string, cost uint64) decide.Descriptor {
	return decide.Descriptor{Entries: entries(text), HitsAddend: cost, HasHitsAddend: true}
}

// bringing is asking with numbers of its own.
func bringing(text string, requests uint64, period time.Duration) decide.Descriptor {
	d := asking(text, 1)
	d.Own = decide.Override{Set: true, Requests: requests, Period: period, Names: &decide.OwnNames{Whole: "numbers"}}
	return d
}

func (r *rig) call(descriptors ...decide.Descriptor) *decide.Call {
	r.t.Helper()
	c := r.NewCall()
	c.Domain = "d"
	c.Descriptors = append(c.Descriptors, descriptors...)
	if err := c.Check(true); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// take decides a request.
func (r *rig) take(descriptors ...decide.Descriptor) *decide.Call {
	r.t.Helper()
	c := r.call(descriptors...)
	if err := r.Decide(context.Background(), c); err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *rig) assign(entriesText string, terms assign.Terms) {
	r.table.Put(&assign.Assignment{Subject: assign.Subject{Domain: "d", Entries: entries(entriesText)}, Base: assign.Layer{Terms: terms}, ETag: "1"})
}
