package endpoint

import (
	"fmt"
	"net/http"
)

// Refusing returns a handler that answers like mux, except that it refuses requests
// without a route in JSON, like the port's other errors, instead of text. The refusals
// name the path of the document that lists the routes.
func Refusing(mux *http.ServeMux, document string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			w = &refusal{ResponseWriter: w, request: r, document: document}
		}
		mux.ServeHTTP(w, r)
	})
}

// refusal writes a refusal in JSON instead of the mux's own. Other answers of the mux,
// such as redirects to a clean path, stay as they are.
type refusal struct {
	http.ResponseWriter
	request  *http.Request
	document string
	refused  bool
}

// WriteHeader implements http.ResponseWriter.
func (f *refusal) WriteHeader(code int) {
	switch code {
	case http.StatusNotFound:
		f.refuse(code, "there is nothing at %.100q; %s says what there is", f.request.URL.Path, f.document)
	case http.StatusMethodNotAllowed:
		f.refuse(code, "method: found %.20q; allowed at %.100q: %s", f.request.Method, f.request.URL.Path, f.Header().Get("Allow"))
	default:
		f.ResponseWriter.WriteHeader(code)
	}
}

func (f *refusal) refuse(code int, format string, args ...any) {
	f.refused = true
	WriteError(f.ResponseWriter, code, fmt.Sprintf(format, args...))
}

// Write implements http.ResponseWriter.
func (f *refusal) Write(text []byte) (int, error) {
	if f.refused {
		return len(text), nil
	}
	return f.ResponseWriter.Write(text)
}
