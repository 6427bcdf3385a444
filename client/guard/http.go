package guard

import (
	"fmt"
	"net/http"
)

// SetHTTPDefaults sets Status to 429 and Body to the text of Status where they
// are not set. Its error says that Status cannot be that of a response.
func SetHTTPDefaults[R, H any](o *Options[R, int, H]) error {
	if o.Status == 0 {
		o.Status = http.StatusTooManyRequests
	}
	if o.Status < 200 || o.Status > 999 {
		return fmt.Errorf("status: found %d; allowed: 200 to 999", o.Status)
	}
	if o.Body == "" {
		o.Body = http.StatusText(o.Status)
	}
	return nil
}

// Header returns the first value of a request's header, and reports false where
// it has none. Host is one, though net/http takes it out of the others.
func Header(r *http.Request, name string) (string, bool) {
	if http.CanonicalHeaderKey(name) == "Host" {
		return r.Host, r.Host != ""
	}
	values := r.Header.Values(name)
	if len(values) == 0 {
		return "", false
	}
	return values[0], true
}
