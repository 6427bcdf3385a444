package pipe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

type refusedByServer string

func (r refusedByServer) Error() string { return string(r) }
func (refusedByServer) RedisError()     {}

// A command whose outcome is unknown was sent and has no answer. It must be told
// from those that did not run, which a fallback may decide without a second charge.
func TestOutcomeIsUnknownOnlyOfWhatWasSent(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		err     error
		unknown bool
	}{
		{"decided", nil, false},
		{"an error of the server", refusedByServer("READONLY You can't write against a read only replica."), false},
		{"a redirection that was followed", refusedByServer("MOVED 866 127.0.0.1:7001"), true},
		{"a redirection of a slot on the move", refusedByServer("ASK 866 127.0.0.1:7001"), true},
		{"a reply that cannot be read", fmt.Errorf("batch: %w", script.ErrUnreadable), false},
		{"no connection within the time", redis.ErrPoolTimeout, false},
		{"the time is over before there is a connection", context.DeadlineExceeded, false},
		{"the caller goes before there is a connection", context.Canceled, false},
		{"a dial that failed", &net.OpError{Op: "dial", Err: errors.New("connection refused")}, false},
		{"a write that failed", &net.OpError{Op: "write", Err: errors.New("broken pipe")}, true},
		{"a read that failed", &net.OpError{Op: "read", Err: errors.New("connection reset")}, true},
		{"a read that timed out", &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, true},
		{"a connection that was closed", io.EOF, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := mayHaveRun(tc.err); got != tc.unknown {
				t.Errorf("that %v may have run is %t, want %t", tc.err, got, tc.unknown)
			}
		})
	}
}
