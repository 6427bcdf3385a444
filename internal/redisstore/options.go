package redisstore

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/pipe"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// Options of a Store.
type Options struct {
	// HashTags is the number of hash tags over which keys are spread, 1 to
	// 16384. All daemons that share keys must agree on it.
	HashTags int
	// Batch bounds the batches; the zero BatchBounds sends each request alone.
	Batch BatchBounds
	// DenialMemory is how long a denial is repeated without asking Redis; 0 to
	// a second.
	DenialMemory time.Duration
	// DenialBytes bounds the bytes of remembered denials; at least
	// MinDenialBytes, and 0 means DefaultDenialBytes.
	DenialBytes int
	// MaxClockSkew is how far ahead of Redis's clock a state may be. A state
	// from further ahead was written by a wrong clock, and goes on from now.
	// 0 means bucket.DefaultMaxClockSkew; it is never negative.
	MaxClockSkew time.Duration
	// Fallback decides what Redis does not; if it is nil, a Take or Check then fails.
	// It belongs to the caller.
	Fallback *fallback.Fallback
	// Metrics is where the store's metrics are registered; nil means nowhere.
	Metrics prometheus.Registerer
	// Log gets a line when a node stops answering, refuses, or answers again;
	// nil means no log.
	Log *slog.Logger
	// OnBatch is called with each batch that carried a take with a bucket.Trace, and
	// returns the name of the span that it made of it. It must be quick: the answers to
	// the batch wait for it. nil means that no take is traced.
	OnBatch func(bucket.TracedBatch) bucket.SpanRef
	// Clock replaces the clock of Redis, in microseconds since the Unix
	// epoch. It is for tests; production leaves it nil.
	Clock func() int64
	// OwnClock replaces the clock of this machine, in microseconds since the Unix epoch,
	// by which the windows of limits by calendar are chosen. It is for tests, and nil
	// means Clock; production leaves it nil.
	OwnClock func() int64
}

// The bytes of remembered denials: the default, and the useful minimum.
const (
	DefaultDenialBytes = 16 << 20
	MinDenialBytes     = 1 << 20
)

// BatchBounds bound the batches that are sent to a node.
type BatchBounds = pipe.Bounds

func (o *Options) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("redis: "+format, args...)) }
	if o.HashTags < 1 || o.HashTags > script.ClusterSlots {
		bad("%d hash tags, where 1 to %d are allowed", o.HashTags, script.ClusterSlots)
	}
	if o.Batch.Size > 1 && (o.Batch.InFlight < 1 || o.Batch.Queue < 1) {
		bad("%d batches in flight and a queue of %d, where at least 1 is needed", o.Batch.InFlight, o.Batch.Queue)
	}
	if o.DenialMemory < 0 || o.DenialMemory > time.Second {
		bad("a denial memory of %s, where 0 to 1s is allowed", o.DenialMemory)
	}
	if o.DenialBytes != 0 && o.DenialBytes < MinDenialBytes {
		bad("a denial memory of %d bytes, where at least %d are needed", o.DenialBytes, MinDenialBytes)
	}
	if o.MaxClockSkew < 0 {
		bad("a clock skew of %s, where a positive one is needed, or 0 for %s", o.MaxClockSkew, bucket.DefaultMaxClockSkew)
	}
	return errors.Join(errs...)
}

func (o *Options) log() *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Log
}

func (o *Options) ownClock() func() int64 {
	for _, clock := range []func() int64{o.OwnClock, o.Clock} {
		if clock != nil {
			return clock
		}
	}
	return func() int64 { return time.Now().UnixMicro() }
}
