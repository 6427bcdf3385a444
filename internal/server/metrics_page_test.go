package server_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// manySeries is a server whose page has more than 200,000 series, half of them of
// values that callers chose.
func manySeries(t testing.TB) *server.Server {
	const rules, values, byValue = 18_000, 1000, 15
	var limits strings.Builder
	limits.WriteString("domain: api\ndescriptors:\n")
	for i := range byValue {
		fmt.Fprintf(&limits, "- {key: path%d, value_to_metric: true, rate_limit: {requests: 1, period: 1h}}\n", i)
	}
	for i := range rules {
		fmt.Fprintf(&limits, "- {key: user, value: u%d, rate_limit: {requests: 1, period: 1h}}\n", i)
	}
	s := servertest.Start(t, limits.String(), likeEnvoyproxy).Server
	ask := func(descriptor string) {
		if _, err := s.RPC().ShouldRateLimit(t.Context(), servertest.Request("api", 1, descriptor)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range rules {
		ask(fmt.Sprintf("user=u%d", i))
	}
	for i := range byValue {
		for j := range values {
			ask(fmt.Sprintf("path%d=/orders/%d", i, j))
		}
	}
	return s
}

// lineCounter counts the lines of a page, and throws it away.
type lineCounter struct {
	header http.Header
	lines  int
}

func (c *lineCounter) Header() http.Header { return c.header }

func (c *lineCounter) WriteHeader(int) {}

func (c *lineCounter) Write(p []byte) (int, error) {
	c.lines += bytes.Count(p, []byte("\n"))
	return len(p), nil
}
