package xds

import (
	"context"
	"time"
)

// No more than burst requests are sent in any span, whatever the server does: a server
// that answers each refusal with what was refused would otherwise make us send thousands.
// A span is longer than a second so that fewer than five also arrive in any second.
const (
	burst = 4
	span  = 1500 * time.Millisecond
)

// A server that keeps sending different large configurations takes at most a third of a
// processor: work owes a rest of restFactor times its duration. As long as no more than
// mayOwe is owed, nothing waits.
const (
	restFactor = 2
	mayOwe     = 5 * time.Second
)

// pace spaces requests and work, over all streams. One goroutine uses it.
type pace struct {
	// sent holds the times of the last requests, in a ring; next is the oldest.
	sent [burst]time.Time
	next int
	// restsUntil is when no more rest is owed.
	restsUntil time.Time
}

// work processes a response, after a rest if too much is owed. It fails if ctx ends
// first.
func (p *pace) work(ctx context.Context, do func()) error {
	if err := sleep(ctx, time.Until(p.restsUntil.Add(-mayOwe))); err != nil {
		return err
	}
	began := time.Now()
	do()
	if p.restsUntil.Before(began) {
		p.restsUntil = began
	}
	// What was owed before continues from where the work began.
	p.restsUntil = p.restsUntil.Add((1 + restFactor) * time.Since(began))
	return nil
}

// wait waits until a request may be sent, and counts it. It fails if ctx ends first.
func (p *pace) wait(ctx context.Context) error {
	if err := sleep(ctx, span-time.Since(p.sent[p.next])); err != nil {
		return err
	}
	p.sent[p.next] = time.Now()
	p.next = (p.next + 1) % burst
	return nil
}

// sleep sleeps for d, if positive. It fails if ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
