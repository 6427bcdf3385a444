package adminapi

import (
	"net/http"
	"time"
)

// bodyWithin is how long a body may take to arrive.
const bodyWithin = 10 * time.Second

// readBody reads a request before it has a place among those that are answered, so that a
// caller who sends slowly delays only itself, and then identifies the caller again. Its error
// is a status.
func (a *API) readBody(r *http.Request, method string, read func() error) error {
	if r.ContentLength == 0 {
		return read()
	}
	v := visitOf(r.Context())
	v.deadlines.read(time.Now().Add(bodyWithin))
	// A deadline that stays set would end the request while it is answered.
	defer v.deadlines.read(time.Time{})
	if err := read(); err != nil {
		return err
	}
	return mayStill(r.Context(), method)
}
