// Package leases simulates clients that decide by leases, for docs/leases.md. Package lease
// decides in the clients, and package bucket in the daemons. Time is simulated, so that
// every run is the same. No message is lost, and a request travels as long as its answer.
package leases

import (
	"container/heap"
	"math/rand/v2"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/lease"
)

// Load is what some clients ask of one key. Their requests cost 1.
type Load struct {
	Limit   bucket.Spec
	Clients int
	Offered float64 // by all of them, a second
	// The outcome is that of Length, after Warm.
	Warm, Length time.Duration
}

// Outcome is what became of the requests, and what daemons did for them.
type Outcome struct {
	Offered, Admitted int64
	// Takes come over a stream, and GiveBacks are calls of their own.
	Takes, GiveBacks int64
	// Again is how often a take was decided again, since the limit denied its lease.
	Again int64
}

// Calls returns how often daemons were asked.
func (o *Outcome) Calls() int64 { return o.Takes + o.GiveBacks }

// travel is how long a request or an answer is on its way, in microseconds: with the time
// in which a busy daemon waits for Redis, about what a stream takes.
const travel = 500

// key is one key of a store, with those who ask for it.
type key struct {
	load   Load
	limit  *bucket.Limit
	state  bucket.State
	random *rand.Rand
	now    int64 // us since the epoch
	events events
	out    Outcome
}

// Run simulates the requests for one key.
func Run(load Load, seed uint64) (Outcome, error) {
	limit, err := bucket.NewLimit(load.Limit)
	if err != nil {
		return Outcome{}, err
	}
	k := &key{load: load, limit: limit, random: rand.New(rand.NewPCG(seed, 43)), now: 1_790_000_000_000_000}
	for range load.Clients {
		c := &client{key: k}
		c.holding = lease.New(c, "", k.instant())
		c.arrive()
	}
	begin := k.now + load.Warm.Microseconds()
	k.in(load.Warm.Microseconds(), func() { k.out = Outcome{} })
	for end := begin + load.Length.Microseconds(); k.events[0].at < end; {
		e := heap.Pop(&k.events).(event)
		k.now = e.at
		e.do()
	}
	return k.out, nil
}

// in does something after so many microseconds.
func (k *key) in(us int64, do func()) { heap.Push(&k.events, event{k.now + us, do}) }

func (k *key) instant() lease.Instant { return lease.Instant{Mono: k.now * 1000, Wall: k.now * 1000} }

// decide decides a cost as a daemon does: of a lease that is denied, what remains, and then
// only the request.
func (k *key) decide(cost int64) lease.Answer[int64] {
	k.out.Takes++
	d := k.take(cost)
	for next := min(cost-1, d.Remaining); !d.Allowed() && cost > 1; next = 1 {
		k.out.Again++
		cost = max(1, next)
		d = k.take(cost)
	}
	a := lease.Answer[int64]{Value: d.At, Allowed: d.Allowed(), Charged: cost, GoodFor: k.limit.GoodFor(&d), Remaining: d.Remaining}
	if a.Allowed {
		a.Denies = d.Remaining == 0 && k.limit.Algorithm.IsBucket()
	} else {
		a.GoodFor = min(k.limit.Lease, d.RetryAfter)
	}
	return a
}

// take decides a cost, and charges it if it is allowed.
func (k *key) take(cost int64) bucket.Decision {
	demand := bucket.Demand{Cost: cost}
	d := k.limit.Decide(&k.state, k.now, demand)
	if d.Allowed() {
		return k.limit.Charge(&k.state, k.now, demand, d)
	}
	return d
}

// event is something that happens at a moment.
type event struct {
	at int64
	do func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
