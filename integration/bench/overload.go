package main

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

const (
	overloadFactor   = 4
	overloadDeadline = 20 * time.Millisecond
	// overloadCallers bounds what is in flight: as if so many workers of
	// proxies waited.
	overloadCallers = 4096
	// overloadSlices of a plan's length are how long it takes.
	overloadSlices = 5
)

// overloaded is what a daemon does when it is asked for more than it can
// answer.
type overloaded struct {
	peak float64 // answers a second of 256 callers in a closed loop, before
	// A second of the overload: offered is what arrived, sent what the
	// generator brought out before the deadline, answered what was answered
	// by then.
	offered, sent, answered float64
	// Bytes that the daemon's process has: at the peak, at most while
	// overloaded, and after.
	before, most, after int64
	// The peak again, directly after.
	peakAfter, p99Before, p99After float64
	failedAfter                    int64
}

// overload sends a daemon on one Redis several times what it can answer.
func (l *lab) overload(ctx context.Context, p plan) (o overloaded, err error) {
	d, err := l.daemon(ctx, single)
	if err != nil {
		return o, err
	}
	usual, err := newSubject(nameDaemon, d.grpc, d.process.pid(), nil, row{load: evenLoad(256)})
	if err != nil {
		return o, err
	}
	defer usual.close()
	many, err := newSubject(nameDaemon, d.grpc, d.process.pid(), nil, row{load: evenLoad(overloadCallers)})
	if err != nil {
		return o, err
	}
	defer many.close()
	if _, err = usual.slice(ctx, 0, p.connect, 0); err != nil {
		return o, err
	}
	peak, err := usual.slice(ctx, p.warm, p.slice, 0)
	if err != nil {
		return o, err
	}
	o.peak, o.p99Before = peak.rate, peak.p99
	if o.before, err = resident(d.process.pid()); err != nil {
		return o, err
	}
	if err := o.flood(ctx, many, overloadSlices*p.slice); err != nil {
		return o, err
	}
	failed := usual.failed()
	// No warming: what matters is the first moment.
	after, err := usual.slice(ctx, 0, p.slice, 0)
	o.peakAfter, o.p99After, o.failedAfter = after.rate, after.p99, usual.failed()-failed
	if err == nil {
		o.after, err = resident(d.process.pid())
	}
	return o, err
}

// flood runs the overload for so long and watches the daemon's memory.
func (o *overloaded) flood(ctx context.Context, many *subject, length time.Duration) error {
	var stage atomic.Int32
	stage.Store(measuring)
	began := time.Now()
	all := many.run(&stage, overloadFactor*o.peak, overloadDeadline)
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
		o.most = max(o.most, size)
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

func (o overloaded) table() *table {
	t := &table{texts: 1, columns: []column{{"", "one Redis"}, {"", "req/s"}, {"", "p99 us"}, {"", "resident MB"}, {"", "failed"}}}
	megabytes := func(n int64) string { return number(float64(n)/1e6, 0) }
	t.add("the peak of 256 callers", number(o.peak, 0), latency(o.p99Before), megabytes(o.before), "0")
	t.add(fmt.Sprintf("offered, %d times as much", overloadFactor), number(o.offered, 0))
	t.add(fmt.Sprintf("sent within %v", overloadDeadline), number(o.sent, 0))
	t.add("answered by then", number(o.answered, 0), "", megabytes(o.most), number(math.Max(0, 1-o.answered/o.sent)*100, 0)+" %")
	t.add("256 callers, directly after", number(o.peakAfter, 0), latency(o.p99After), megabytes(o.after), fmt.Sprint(o.failedAfter))
	return t
}
