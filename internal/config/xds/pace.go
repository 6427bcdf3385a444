package xds

import (
	"context"
	"time"
)

// No more than burst requests are sent in any span, whatever the server does: one
// that answers each refusal with what was refused would have us send thousands. A
// span is longer than a second so that fewer than five arrive in one, too.
const (
	burst = 4
	span  = 1500 * time.Millisecond
)

// pace spaces requests, over all streams. One goroutine uses it.
type pace struct {
	// sent are the moments of the last requests, in a ring; next is the oldest.
	sent [burst]time.Time
	next int
}

// wait waits until a request may be sent, and counts it. It fails if ctx ends
// before.
func (p *pace) wait(ctx context.Context) error {
	if left := span - time.Since(p.sent[p.next]); left > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(left):
		}
	}
	p.sent[p.next] = time.Now()
	p.next = (p.next + 1) % burst
	return nil
}
