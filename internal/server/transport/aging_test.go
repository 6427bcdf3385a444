package transport_test

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/server/transport"
)

// A stream ends while its connection takes calls, and on an old one within the grace. A
// connection that is not known is a new one.
func TestStreamsEndBeforeTheirConnection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		age, grace time.Duration
		max        time.Duration // 0 if connections are not cut
	}{
		{"no age", 0, time.Hour, 0},
		{"no grace", time.Hour, 0, 0},
		{"an age", 100 * time.Hour, time.Hour, 85 * time.Hour}, // gRPC may cut it a tenth sooner
		{"a long grace", time.Hour, 100 * time.Hour, 50 * time.Hour},
		{"an age that is over at once", time.Nanosecond, 10 * time.Second, 5 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			until, isCut := transport.UntilOld(context.Background(), c.age, c.grace)
			if isCut != (c.max > 0) || until > c.max || until < c.max-time.Minute {
				t.Errorf("%s, %t, want at most %s", until, isCut, c.max)
			}
		})
	}
}

// A call that no port of the server took has no certificate.
func TestCallsWithoutAConnectionHaveNoCertificate(t *testing.T) {
	t.Parallel()
	if names, has := transport.CertificateNames(context.Background()); has || names != nil {
		t.Errorf("%v, %t", names, has)
	}
}
