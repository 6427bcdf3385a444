package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	overloadFactor   = 4
	overloadDeadline = 20 * time.Millisecond
	// overloadCallers bounds what is in flight: as if this many workers of proxies
	// waited.
	overloadCallers = 4096
	// overloadSlices is how long it takes, in slices of a plan.
	overloadSlices = 5
)

// overloaded is what a server does when it is asked for more than the daemon
// can answer.
type overloaded struct {
	name string
	peak float64 // answers a second of 256 callers in a closed loop, before
	// A second of the overload: offered is what arrived, sent what the generator sent
	// before the deadline, answered what was answered by then.
	offered, sent, answered float64
	// Bytes of memory of the process: at the peak, at most while overloaded, and after.
	before, max, after int64
	// The peak again, directly after.
	peakAfter   float64
	failedAfter int64
}

// overload sends a daemon on one Redis several times what it can answer. It sends the
// same to the tuned bare server, to tell what the generator and gRPC contribute.
func (l *lab) overload(ctx context.Context, p plan) ([]overloaded, error) {
	d, err := l.daemon(ctx, single)
	if err != nil {
		return nil, err
	}
	of := overloaded{name: nameDaemon}
	if err := of.measure(ctx, d.grpc, d.process.pid(), 0, p); err != nil {
		return nil, err
	}
	bare := overloaded{name: nameTuned}
	if err := bare.measure(ctx, l.tunedAt, l.bareTuned.pid(), of.peak, p); err != nil {
		return nil, err
	}
	return []overloaded{of, bare}, nil
}

// measure overloads a server with a multiple of peak, or, if that is 0, of its own peak.
func (o *overloaded) measure(ctx context.Context, address string, pid int, peak float64, p plan) error {
	usual, err := newSubject(o.name, address, pid, nil, row{load: evenLoad(256)})
	if err != nil {
		return err
	}
	defer usual.close()
	many, err := newSubject(o.name, address, pid, nil, row{load: evenLoad(overloadCallers)})
	if err != nil {
		return err
	}
	defer many.close()
	if _, err = usual.slice(ctx, 0, p.connect, 0); err != nil {
		return err
	}
	if o.peak, err = usual.peak(ctx, p); err != nil {
		return err
	}
	if peak == 0 {
		peak = o.peak
	}
	if o.before, err = resident(pid); err != nil {
		return err
	}
	if err := o.flood(ctx, many, overloadFactor*peak, overloadSlices*p.slice); err != nil {
		return err
	}
	failed := usual.failed()
	// No warm-up: what matters is the first moment.
	after, err := usual.slice(ctx, 0, p.slice, 0)
	if err != nil {
		return err
	}
	o.peakAfter, o.failedAfter = after.rate, usual.failed()-failed
	o.after, err = resident(pid)
	return err
}

// flood runs the overload for length and watches the server's memory.
func (o *overloaded) flood(ctx context.Context, many *subject, rate float64, length time.Duration) error {
	var stage atomic.Int32
	stage.Store(measuring)
	began := time.Now()
	all := many.run(&stage, rate, overloadDeadline)
	defer all.Wait()
	defer stage.Store(ending)
	for time.Since(began) < length {
		if err := wait(ctx, length/50); err != nil {
			return err
		}
		size, err := resident(many.pid)
		if err != nil {
			return err
		}
		o.max = max(o.max, size)
	}
	seconds := time.Since(began).Seconds()
	answered, failed := float64(many.answers()), float64(many.failed())
	o.answered, o.sent = answered/seconds, (answered+failed)/seconds
	o.offered = o.sent + float64(many.dropped.Load())/seconds
	return nil
}

func (s *subject) failed() (n int64) {
	for _, c := range s.callers {
		n += c.tally.failed.Load()
	}
	return n
}

func overloadTable(all []overloaded) *table {
	t := &table{texts: 1, columns: []column{
		{"", "server"}, {"", "peak req/s"},
		{"overload, req/s", "offered"}, {"overload, req/s", "sent"}, {"overload, req/s", "in time"},
		{"resident MB", "before"}, {"resident MB", "most"}, {"resident MB", "after"},
		{"directly after", "req/s"}, {"directly after", "failed"},
	}}
	megabytes := func(n int64) string { return number(float64(n)/1e6, 0) }
	for _, o := range all {
		t.add(o.name, number(o.peak, 0),
			number(o.offered, 0), number(o.sent, 0), number(o.answered, 0),
			megabytes(o.before), megabytes(o.max), megabytes(o.after),
			number(o.peakAfter, 0), fmt.Sprint(o.failedAfter))
	}
	return t
}
