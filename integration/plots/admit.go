package main

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
)

const (
	// capacity is how many requests each limit admits, in a minute or at once.
	capacity = 60
	// every is the time between two requests, and length how long they come.
	every  = 200 * time.Millisecond
	length = 150 * time.Second
	// running is how long an admitted request runs, which matters only to concurrency.
	running = 40 * time.Second
	// beforeBorder is the time from the first request to the next minute of the clock.
	beforeBorder = 20 * time.Second
)

// first is the moment of the first request.
var first = time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC).Add(-beforeBorder)

// curves are moments since the first request, in order.
type curves struct {
	// admitted are those at which a request was admitted, and sent those at which a caller
	// sends it that waits as it is told; without a wait they are equal.
	admitted, sent []time.Duration
}

// inFlight is a request that was admitted, and the moment at which it ends.
type inFlight struct {
	holder string
	ends   time.Duration
}

// admit has a limit decide all requests. With holders, a request releases its slot as it
// ends.
func admit(spec bucket.Spec) (curves, error) {
	limit, err := bucket.NewLimit(spec)
	if err != nil {
		return curves{}, err
	}
	var now time.Duration
	store := memstore.New(memstore.Options{MaxKeys: 1, Clock: func() int64 { return first.Add(now).UnixMicro() }})
	defer store.Close()
	take := func(cost int64, holder string) (bucket.Decision, error) {
		hits := []bucket.Hit{{Limit: limit, Key: []byte("k"), Place: []byte("k"), Cost: cost, Holder: holder}}
		decisions := make([]bucket.Decision, 1)
		err := store.Take(context.Background(), hits, decisions)
		return decisions[0], err
	}
	var c curves
	var runs []inFlight
	for now = 0; now < length; now += every {
		holder := ""
		if limit.Algorithm.HasHolders() {
			holder = strconv.FormatInt(int64(now), 10)
			for len(runs) > 0 && runs[0].ends <= now {
				if _, err := take(-1, runs[0].holder); err != nil {
					return curves{}, err
				}
				runs = runs[1:]
			}
		}
		d, err := take(1, holder)
		if err != nil {
			return curves{}, err
		}
		if d.Allowed() {
			c.admitted = append(c.admitted, now)
			c.sent = append(c.sent, now+d.Wait)
			runs = append(runs, inFlight{holder: holder, ends: now + running})
		}
	}
	slices.Sort(c.sent)
	return c, nil
}

// before returns how many moments of a curve are before t.
func before(curve []time.Duration, t time.Duration) int {
	n, _ := slices.BinarySearch(curve, t)
	return n
}

// mostInAMinute returns how many moments of a curve lie at most in the minute that begins
// with one of them, its end not included.
func mostInAMinute(curve []time.Duration) int {
	most := 0
	for i, at := range curve {
		most = max(most, before(curve, at+time.Minute)-i)
	}
	return most
}
