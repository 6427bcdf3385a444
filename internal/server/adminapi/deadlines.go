package adminapi

import (
	"net/http"
	"sync"
	"time"
)

// deadlines sets the deadlines of a request. A gRPC stream may still be ending when its
// request has ended, as when its caller disconnects; then no deadline may be set.
type deadlines struct {
	response *http.ResponseController

	mu       sync.Mutex
	hasEnded bool
}

// read sets the read deadline; the zero time means none.
func (d *deadlines) read(until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.hasEnded {
		_ = d.response.SetReadDeadline(until)
	}
}

// write sets the write deadline; the zero time means none.
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
