package decidetest

import (
	"context"
	"path/filepath"
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

// Rig is a decider on the limits of one file, in memory, whose clock stands still.
type Rig struct {
	*decide.Decider
	T      testing.TB
	Clock  atomic.Int64 // in microseconds since the Unix epoch
	Memory *memstore.Store
	Live   *rules.Live
	path   string
}

// Started is when a Rig's clock begins.
var Started = time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)

// NewRig returns a decider on limits as a file has them.
func NewRig(t testing.TB, limits string, change ...func(*decide.Options)) *Rig {
	t.Helper()
	r := &Rig{T: t}
	r.Clock.Store(Started.UnixMicro())
	r.path = filetest.Write(t, t.TempDir(), "limits.yaml", limits)
	r.Live = limitsfile.NewLive(r.path, nil)
	if err := r.Live.Reload(); err != nil {
		t.Fatal(err)
	}
	r.Memory = memstore.New(memstore.Options{MaxKeys: 1e5, Clock: r.Clock.Load})
	t.Cleanup(func() { r.Memory.Close() })
	o := decide.Options{
		Live: r.Live, Store: r.Memory, Refuses: func() error { return nil }, Assigned: assign.NewTable(), Now: r.Clock.Load,
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

// Reload puts limits in the place of those that are loaded.
func (r *Rig) Reload(limits string) {
	r.T.Helper()
	filetest.Write(r.T, filepath.Dir(r.path), filepath.Base(r.path), limits)
	if err := r.Live.Reload(); err != nil {
		r.T.Fatal(err)
	}
}

// Call returns a checked call in the domain d.
func (r *Rig) Call(descriptors ...decide.Descriptor) *decide.Call {
	r.T.Helper()
	c := r.NewCall()
	c.Domain = "d"
	c.Descriptors = append(c.Descriptors, descriptors...)
	if err := c.Check(true); err != nil {
		r.T.Fatal(err)
	}
	return c
}

// Take decides a request.
func (r *Rig) Take(descriptors ...decide.Descriptor) *decide.Call {
	r.T.Helper()
	c := r.Call(descriptors...)
	if err := r.Decide(context.Background(), c); err != nil {
		r.T.Fatal(err)
	}
	return c
}

// Entries reads "key=value,key=value".
func Entries(text string) (all []bucket.Entry) {
	for _, part := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		all = append(all, bucket.Entry{Key: key, Value: value})
	}
	return all
}

// Asking returns a descriptor with this cost.
func Asking(text string, cost uint64) decide.Descriptor {
	return decide.Descriptor{Entries: Entries(text), HitsAddend: cost, HasHitsAddend: true}
}

// Bringing is Asking with numbers of its own.
func Bringing(text string, requests uint64, period time.Duration) decide.Descriptor {
	d := Asking(text, 1)
	d.Own = decide.Override{Set: true, Requests: requests, Period: period, Names: &decide.OwnNames{Whole: "numbers"}}
	return d
}
