package redislog

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// blockFor is how long a daemon listens in one command.
	blockFor = time.Second
	// rings is about how many rings are kept; a daemon that misses one looks at all
	// tags anyway.
	rings = 100
	// ringLives is how long the doorbell's key lives.
	ringLives = time.Minute
	// everyTag, in a ring, stands for all tags.
	everyTag = "*"
	// retryEvery is the pause after a failure.
	retryEvery = 200 * time.Millisecond
)

// doorbell is a short stream that says which tags have changed. A lost ring costs no
// more than time.
type doorbell struct {
	store *Store
	key   string
	wake  chan struct{} // has an element when a tag is dirty

	// calls are those of other daemons that were heard (see CatchUp).
	calls chan string

	mu    sync.Mutex
	dirty map[*tag]bool // those to look at
	asked []chan<- error
}

func (d *doorbell) init(s *Store) {
	*d = doorbell{store: s, key: s.key("doorbell"), wake: make(chan struct{}, 1), calls: make(chan string, maxCalls), dirty: make(map[*tag]bool)}
}

// mark has Run look at tags.
func (d *doorbell) mark(tags ...*tag) {
	if len(tags) == 0 {
		return // or Run would look at nothing, again and again
	}
	d.markFor(nil, tags)
}

// markFor has Run look at tags. Unless it is nil, answer gets nil, or why Run failed,
// once Run has looked at them and at all that is marked.
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

// take returns the tags to look at, and who is to be answered then. It forgets both.
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

// ring tells all daemons, this one included, that the tags of calls have changed.
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
	// Whoever does not hear it looks by itself.
	_ = d.store.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: d.key, MaxLen: rings, Approx: true, Values: []any{"t", text}})
		pipe.PExpire(ctx, d.key, ringLives)
	})
}

// call tells all daemons that one calls the roll.
func (d *doorbell) call(ctx context.Context, name string) error {
	return d.store.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: d.key, MaxLen: rings, Approx: true, Values: []any{"t", everyTag, "call", name, "by", d.store.o.ID}})
		pipe.PExpire(ctx, d.key, ringLives)
	})
}

// listen marks the tags that others ring for, until ctx ends.
func (d *doorbell) listen(ctx context.Context) {
	last := ""
	for ctx.Err() == nil {
		next, err := d.listenOnce(ctx, last)
		if err != nil {
			next = ""
			d.store.redis.ReloadAfter(ctx, err)
			select {
			case <-ctx.Done():
			case <-time.After(retryEvery):
			}
		}
		last = next
	}
}

// listenOnce waits for rings after last, and returns the new last one. Where last is
// empty, as at the beginning and whenever none came for a while, it looks for the
// newest first and marks all tags: the stream may have been lost, and its IDs may
// begin anew.
func (d *doorbell) listenOnce(ctx context.Context, last string) (string, error) {
	if last == "" {
		newest, err := d.newest(ctx)
		if err != nil {
			return "", err
		}
		last = newest
		d.mark(d.store.tags...)
	}
	ctx, cancel := context.WithTimeout(ctx, blockFor+d.store.redis.Timeout())
	defer cancel()
	streams, err := d.store.redis.XRead(ctx, &redis.XReadArgs{Streams: []string{d.key, last}, Block: blockFor}).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for _, stream := range streams {
		for _, ring := range stream.Messages {
			last = ring.ID
			d.hear(ring.Values["t"])
			d.hearCall(ring.Values)
		}
	}
	return last, nil
}

func (d *doorbell) newest(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, d.store.redis.Timeout())
	defer cancel()
	rings, err := d.store.redis.XRevRangeN(ctx, d.key, "+", "-", 1).Result()
	if err != nil {
		return "", err
	}
	if len(rings) == 0 {
		return "0-0", nil
	}
	return rings[0].ID, nil
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

// hearCall keeps a call of another daemon until it is answered. Who calls while too many
// are kept calls again.
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
