package guard

import "net/http"

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
