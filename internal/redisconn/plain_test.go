package redisconn_test

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// A plain Redis takes the first bytes of TLS for a command without an end, and waits.
func TestTLSOfAServerWithoutIsNamed(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	c, err := redisconn.New(redisconn.Options{
		Mode: redisconn.Single, Addresses: []string{addr}, Timeout: 50 * time.Millisecond,
		TLS: func(string) (*tls.Config, error) { return &tls.Config{InsecureSkipVerify: true}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	asynctest.Eventually(t, "the error says it", func() bool {
		err := c.Explain(redisconn.AnyNode, c.Ping(t.Context()).Err())
		return errors.Is(err, redisconn.ErrRefused) && strings.Contains(err.Error(), addr+" has no TLS at this port; see redis.tls.enabled")
	})
}
