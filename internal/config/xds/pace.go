package xds

import (
	"context"
	"time"
)

// perSecond is how many requests are sent in any second at most, whatever the
// server does: one that answers each refusal with what was refused would have us
// send thousands.
const perSecond = 4

// pace spaces requests, over all streams. One goroutine uses it.
type pace struct {
	// sent are the moments of the last requests, in a ring; next is the oldest.
	sent [perSecond]time.Time
	next int
}

// wait waits until a request may be sent, and counts it. It fails if ctx ends
// before.
func (p *pace) wait(ctx context.Context) error {
	if left := time.Second - time.Since(p.sent[p.next]); left > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(left):
		}
	}
	p.sent[p.next] = time.Now()
	p.next = (p.next + 1) % perSecond
	return nil
}
