package integration

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// backend stands behind Envoy and records the requests that reach it.
type backend struct {
	addr string

	mu   sync.Mutex
	seen []*http.Request
}

// startBackend starts a backend that answers each request with 200. It returns
// the header x-answer-tokens of a request as x-tokens.
func startBackend(t testing.TB) *backend {
	t.Helper()
	b := &backend{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		b.seen = append(b.seen, r)
		b.mu.Unlock()
		_, _ = io.Copy(io.Discard, r.Body)
		if n := r.Header.Get("x-answer-tokens"); n != "" {
			w.Header().Set("x-tokens", n)
		}
		fmt.Fprintln(w, "served", r.URL.Path)
	}))
	t.Cleanup(server.Close)
	b.addr = server.Listener.Addr().String()
	return b
}

// served returns how many requests for a path have reached the backend.
func (b *backend) served(path string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.seen {
		if r.URL.Path == path {
			n++
		}
	}
	return n
}
