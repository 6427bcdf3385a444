package redislog

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

const (
	// rings is roughly how many rings are kept; a daemon that misses one looks at all
	// tags anyway.
	rings = 100
	// ringLives is how long the doorbell's key lives.
	ringLives = time.Minute
	// everyTag, in a ring, stands for all tags.
	everyTag = "*"
	// retryEvery is the pause after a failure.
	retryEvery = 200 * time.Millisecond
)

// doorbell is a short stream that says which tags have changed. A lost ring only costs
// time.
type doorbell struct {
	store *Store
	key   string
	wake  chan struct{} // has an element when a tag is dirty

	// calls holds the calls heard from other daemons (see CatchUp).
	calls chan string

	mu    sync.Mutex
	dirty map[*tag]bool // those to look at
	asked []chan<- error
}

func (d *doorbell) init(s *Store) {
	*d = doorbell{store: s, key: s.key("doorbell"), wake: make(chan struct{}, 1), calls: make(chan string, maxCalls), dirty: make(map[*tag]bool)}
}

// mark makes Run look at tags.
func (d *doorbell) mark(tags ...*tag) {
	if len(tags) == 0 {
		return // otherwise Run would look at nothing, again and again
	}
	d.markFor(nil, tags)
}

// markFor makes Run look at tags. If answer is not nil, it receives nil once Run has
// looked at them and at everything else marked, or why Run failed.
func (d *doorbell) markFor(answer chan<- error, tags []*tag) {
	d.mu.Lock()
	for _, t := range tags {
		d.dirty[t] = true
	}
	if answer != nil {
		d.asked = append(d.asked, answer)
	}
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// take returns the tags to look at and whom to answer afterwards, and clears both.
func (d *doorbell) take() (tags []*tag, asked []chan<- error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for t := range d.dirty {
		tags = append(tags, t)
	}
	clear(d.dirty)
	slices.SortFunc(tags, func(a, b *tag) int { return a.index - b.index })
	asked, d.asked = d.asked, nil
	return tags, asked
}

// ring tells all daemons, including this one, that the tags of calls have changed.
func (d *doorbell) ring(ctx context.Context, calls []*call) {
	var tags []*tag
	var indices []string
	for _, c := range calls {
		tags = append(tags, c.tag)
		indices = append(indices, strconv.Itoa(c.tag.index))
	}
	d.mark(tags...)
	text := everyTag
	if len(indices) <= len(d.store.tags)/2 {
		text = strings.Join(indices, ",")
	}
	// A daemon that does not hear it looks by itself.
	_ = d.store.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: d.key, MaxLen: rings, Approx: true, Values: []any{"t", text}})
		pipe.PExpire(ctx, d.key, ringLives)
	})
}

// call tells all daemons that one is calling the roll.
func (d *doorbell) call(ctx context.Context, name string) error {
	return d.store.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: d.key, MaxLen: rings, Approx: true, Values: []any{"t", everyTag, "call", name, "by", d.store.o.ID}})
		pipe.PExpire(ctx, d.key, ringLives)
	})
}

// listen marks the tags for which others ring, until ctx ends. At the beginning, and
// whenever none came for a while, it marks all: the stream may have been lost.
func (d *doorbell) listen(ctx context.Context) {
	tail := redisconn.Tail{Conn: d.store.redis, Key: d.key, Max: rings}
	for ctx.Err() == nil {
		heard, err := tail.Next(ctx)
		if err != nil {
			d.store.redis.ReloadAfter(ctx, err)
			pause(ctx, retryEvery)
			continue
		}
		if len(heard) == 0 {
			d.mark(d.store.tags...)
		}
		for _, ring := range heard {
			d.hear(ring.Values["t"])
			d.hearCall(ring.Values)
		}
	}
}

// hear marks the tags of a ring.
func (d *doorbell) hear(value any) {
	text, _ := value.(string)
	var tags []*tag
	for index := range strings.SplitSeq(text, ",") {
		i, err := strconv.Atoi(index)
		if err != nil || i < 0 || i >= len(d.store.tags) {
			tags = d.store.tags
			break
		}
		tags = append(tags, d.store.tags[i])
	}
	d.mark(tags...)
}

// hearCall keeps a call of another daemon until it is answered. A daemon whose call is
// dropped because too many are kept calls again.
func (d *doorbell) hearCall(ring map[string]any) {
	call, _ := ring["call"].(string)
	if call == "" || len(call) > maxCallBytes || ring["by"] == d.store.o.ID {
		return
	}
	select {
	case d.calls <- call:
	default:
	}
}
