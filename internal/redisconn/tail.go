package redisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// tailWaits is how long a Tail waits in one command.
const tailWaits = time.Second

// Tail reads what is added to a short stream. It is for one goroutine.
type Tail struct {
	Conn *Conn
	Key  string
	// Max is how many entries it reads at once.
	Max int64

	// last is the ID of the last entry that was read. It is empty at the beginning, and
	// after a failure.
	last string
}

// beginning is the ID before all entries of a stream.
const beginning = "0-0"

// Next returns the entries that were added since its last call. It waits for one for
// about a second; none means that what was added before may have been lost. At the
// beginning, and after a failure, it returns none at once, and what is added from then on
// is read.
func (t *Tail) Next(ctx context.Context) (added []redis.XMessage, err error) {
	if t.last == "" {
		t.last, err = t.newest(ctx)
		return nil, err
	}
	added, err = t.wait(ctx)
	switch {
	case err != nil:
		t.last = ""
	case len(added) > 0:
		t.last = added[len(added)-1].ID
	}
	return added, err
}

// wait waits for entries after the last one.
func (t *Tail) wait(ctx context.Context) ([]redis.XMessage, error) {
	whole, cancel := context.WithTimeout(ctx, tailWaits+t.Conn.Timeout())
	defer cancel()
	streams, err := t.Conn.XRead(whole, &redis.XReadArgs{Streams: []string{t.Key, t.last}, Block: tailWaits, Count: t.Max}).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, t.rewind(ctx)
	case err != nil || len(streams) == 0:
		return nil, err
	}
	return streams[0].Messages, nil
}

// rewind goes back to the beginning of a stream that was lost and started again: its IDs
// may be smaller than before, and all of it is new.
func (t *Tail) rewind(ctx context.Context) error {
	newest, err := t.newest(ctx)
	if err == nil && newest != beginning && isBefore(newest, t.last) {
		t.last = beginning
	}
	return err
}

// newest returns the ID of the newest entry, or beginning: where the stream has expired,
// its IDs go on.
func (t *Tail) newest(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, t.Conn.Timeout())
	defer cancel()
	entries, err := t.Conn.XRevRangeN(ctx, t.Key, "+", "-", 1).Result()
	if err != nil {
		return "", err
	}
	if len(entries) == 0 {
		return beginning, nil
	}
	return entries[0].ID, nil
}

// isBefore reports whether the ID of an entry is before another one.
func isBefore(a, b string) bool {
	var aTime, aNumber, bTime, bNumber uint64
	fmt.Sscanf(a, "%d-%d", &aTime, &aNumber)
	fmt.Sscanf(b, "%d-%d", &bTime, &bNumber)
	return cmp.Or(cmp.Compare(aTime, bTime), cmp.Compare(aNumber, bNumber)) < 0
}
