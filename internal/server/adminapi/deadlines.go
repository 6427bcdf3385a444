package adminapi

import (
	"net/http"
	"sync"
	"time"
)

// deadlines sets the deadlines of a request. A gRPC stream may still be ending when its
// request has ended, as when its caller has gone; then nothing may be set any more.
type deadlines struct {
	response *http.ResponseController

	mu       sync.Mutex
	hasEnded bool
}

// read sets until when the request is read; the zero time is for ever.
func (d *deadlines) read(until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.hasEnded {
		_ = d.response.SetReadDeadline(until)
	}
}

// write sets until when the answer is written; the zero time is for ever.
func (d *deadlines) write(until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.hasEnded {
		_ = d.response.SetWriteDeadline(until)
	}
}

// end says that the request has ended.
func (d *deadlines) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hasEnded = true
}
