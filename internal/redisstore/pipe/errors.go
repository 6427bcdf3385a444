package pipe

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// Why the pipe has refused or given up a request.
var (
	ErrNoAnswer    = errors.New("redis: no answer in time")
	ErrBreakerOpen = errors.New("redis: the node does not answer, and is not asked until it does")
	ErrQueueFull   = errors.New("redis: too many requests wait for the node")
	errClosed      = errors.New("redis: the store is closed")
	// errSlotMoves is set by a batch when Redis wants a request sent again. No caller
	// sees it.
	errSlotMoves = errors.New("redis: the request's slot is on the move")
)

// downPrefixes begin the errors of a server that cannot decide anything at present.
var downPrefixes = []string{"LOADING", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "NOAUTH", "WRONGPASS", "BUSY", "MISCONF"}

// isDown reports whether the error of a command says that its node did not answer, or
// that it cannot decide anything at present.
func isDown(err error) bool {
	if err == nil || errors.Is(err, script.ErrUnreadable) {
		return false
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return true
	}
	for _, prefix := range downPrefixes {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// mayHaveRun reports whether a command that ended with err may have run anyway: it was
// sent, and only the server knows the outcome.
func mayHaveRun(err error) bool {
	if err == nil {
		return false // most commands end like this, and the variables below allocate
	}
	if err == ErrBreakerOpen || err == ErrQueueFull || err == errClosed {
		return false
	}
	var answer redis.Error
	var network *net.OpError
	switch {
	case redis.HasErrorPrefix(err, "MOVED"), redis.HasErrorPrefix(err, "ASK"):
		// The client follows these. It leaves them with a command, one of several, that
		// it has sent on and whose reply is lost.
		return true
	case errors.As(err, &answer), errors.Is(err, script.ErrUnreadable):
		return false
	case errors.Is(err, redis.ErrPoolTimeout), errors.As(err, &network) && network.Op == "dial":
		return false
	}
	// A command that was sent ends with its connection's timeout. These errors come
	// before there is a connection.
	return !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

func wrap(err error) error { return fmt.Errorf("redis: %w", err) }
