package guard

import (
	"fmt"
	"net/http"
)

// SetHTTPDefaults sets Status to 429 and Body to the text of Status, unless they
// are set. It returns an error if Status is not 200 to 999.
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

// Header returns the first value of a request's header, and reports false if
// there is none. Host counts as a header, though net/http keeps it apart.
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
