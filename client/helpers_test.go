package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

// patience is how long a test waits for something that must happen. It is the
// timeout of clients whose calls are answered.
const patience = 30 * time.Second

// connect returns a client that the test closes.
func connect(t testing.TB, target string, options ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(target, append([]client.Option{client.Timeout(patience)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func one(domain, key, value string) client.Request {
	return client.Request{Domain: domain, Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E(key, value)}}}}
}
