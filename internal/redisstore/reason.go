package redisstore

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/fallback"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/pipe"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// errTakenElsewhere is the cause of a give-back of what the fallback took.
var errTakenElsewhere = errors.New("redis: what was taken was not taken from Redis")

// reasonOf returns the label for an error of Redis, the network or the pipe.
func reasonOf(err error) fallback.Reason {
	var answer redis.Error
	var network net.Error
	switch {
	case errors.Is(err, pipe.ErrBreakerOpen):
		return fallback.BreakerOpen
	case errors.Is(err, pipe.ErrQueueFull):
		return fallback.QueueFull
	case errors.Is(err, script.ErrUnreadable):
		return fallback.Unreadable
	case errors.As(err, &answer):
		return fallback.Refused
	case errors.Is(err, pipe.ErrNoAnswer), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &network) && network.Timeout():
		return fallback.Timeout
	}
	return fallback.Unreachable
}
