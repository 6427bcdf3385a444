package integration

import (
	"context"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// With the fewest rights that the page about Redis documents, a daemon starts, goes on, and
// decides by Redis.
func TestSmallestUserSuffices(t *testing.T) {
	t.Parallel()
	_, shown, _ := strings.Cut(readPage(t, "docs/redis.md"), "\nACL SETUSER ")
	shown, _, found := strings.Cut(shown, "\n")
	if !found {
		t.Fatal("docs/redis.md shows no user")
	}
	server := redistest.Start(t)
	command := []any{"ACL", "SETUSER"}
	for _, word := range strings.Fields(shown) {
		command = append(command, word)
	}
	if err := redistest.Client(t, server.Addr()).Do(context.Background(), command...).Err(); err != nil {
		t.Fatal(err)
	}
	d := start(t, "--store", "redis", "--redis-addresses", server.Addr(), "--redis-username", "ratelimitd", "--redis-timeout", "10s",
		"--redis-password-file", write(t, t.TempDir(), "password", "PASSWORD"), "--failure-mode", "deny", "--limits-path", "../deploy/limits")
	// It warns of rights that it lacks, such as those for assignments.
	d.waitForLog("docs/redis.md for the rights that suffice")
	for range 10 {
		if !ok(d.ask("api", 1, "user=erin")) {
			t.Fatal("one of ten requests is denied")
		}
	}
	if ok(d.ask("api", 1, "user=erin")) {
		t.Error("the eleventh request is allowed")
	}
}
