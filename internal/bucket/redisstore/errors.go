package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket/fallback"
	"github.com/ratelimitd/ratelimitd/internal/bucket/redisstore/script"
)

// Why Redis did not decide.
var (
	errNoAnswer    = errors.New("redis: no answer in time")
	errBreakerOpen = errors.New("redis: the node does not answer, and is not asked until it does")
	errQueueFull   = errors.New("redis: too many requests wait for the node")
	// errTakenElsewhere is why a give-back is not Redis's: the fallback took.
	errTakenElsewhere = errors.New("redis: what was taken was not taken from Redis")
	errClosed         = errors.New("redis: the store is closed")
)

// reasonOf says in a word why Redis did not decide.
func reasonOf(err error) fallback.Reason {
	var answer redis.Error
	var network net.Error
	switch {
	case errors.Is(err, errBreakerOpen):
		return fallback.BreakerOpen
	case errors.Is(err, errQueueFull):
		return fallback.QueueFull
	case errors.Is(err, script.ErrUnreadable):
		return fallback.Unreadable
	case errors.As(err, &answer):
		return fallback.Refused
	case errors.Is(err, errNoAnswer), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &network) && network.Timeout():
		return fallback.Timeout
	}
	return fallback.Unreachable
}

// downAnswers begin the answers of a server that will decide nothing for
// anybody for now.
var downAnswers = []string{"LOADING", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "NOAUTH", "WRONGPASS", "BUSY", "MISCONF"}

// isDown reports whether a call's error says that its node did not answer, or
// that it cannot decide at all.
func isDown(err error) bool {
	if err == nil || errors.Is(err, script.ErrUnreadable) {
		return false
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return true
	}
	for _, prefix := range downAnswers {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// mayHaveRun reports whether a call that ended with err may have run all the
// same: it was sent, and only the server knows.
func mayHaveRun(err error) bool {
	if err == nil {
		return false // before anything is allocated: most calls end so
	}
	var answer redis.Error
	var network *net.OpError
	switch {
	case errors.As(err, &answer), errors.Is(err, script.ErrUnreadable):
		return false
	case errors.Is(err, redis.ErrPoolTimeout), errors.As(err, &network) && network.Op == "dial":
		return false
	}
	// A call that is away ends by a timeout of its connection. These end
	// before there is one.
	return !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

func wrap(err error) error { return fmt.Errorf("redis: %w", err) }
