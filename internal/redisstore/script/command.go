package script

import (
	"context"
	"hash/maphash"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Command is one EVALSHA and the requests that it decides; on a cluster all their keys
// have the same hash tag. Add adds requests, Prepare makes the EVALSHA, and Decode
// reads its reply. Equal requests are sent as one with their number.
//
// A Command keeps its memory from one use to the next, which Reset begins. Only one
// goroutine at a time may use it.
type Command struct {
	// Tag is the number of the tag.
	Tag int
	// Cmd is the client's command, which later has the reply.
	Cmd *redis.IntSliceCmd

	requests []*Group // the first of each set of equal ones
	count    int      // of all requests
	index    interner // of requests

	keys    interner
	keyList [][]byte // the distinct keys, in the memory of their requests

	limits     interner
	limitList  []*bucket.Limit // the distinct limits
	limitBytes []byte
	seed       maphash.Seed // of limits and holders

	input []byte // the requests as the script reads them
	// strings are the arguments, in the memory of the requests and of this command.
	strings []string
	args    []any
}

// NewCommand returns a command without requests.
func NewCommand() *Command { return &Command{seed: maphash.MakeSeed()} }

// Reset drops all requests.
func (c *Command) Reset() {
	c.Cmd = nil
	clear(c.requests)
	c.requests, c.count = c.requests[:0], 0
	c.index.reset()
	c.keys.reset()
	clear(c.keyList)
	c.keyList = c.keyList[:0]
	c.limits.reset()
	clear(c.limitList)
	c.limitList, c.limitBytes = c.limitList[:0], c.limitBytes[:0]
	c.input = c.input[:0]
	clear(c.strings)
	c.strings = c.strings[:0]
}

// Add adds a request. Its hits and their keys must stay as they are until the reply is
// decoded.
func (c *Command) Add(r *Group) {
	c.count++
	r.same, r.last = nil, r
	i, isNew := c.index.find(r.hash(c.seed), func(i int) bool { return c.requests[i].equals(r) })
	if isNew {
		c.requests = append(c.requests, r)
		return
	}
	first := c.requests[i]
	first.last.same = r
	first.last = r
}

// Len returns how many requests were added, and Distinct how many of them the script
// gets.
func (c *Command) Len() int      { return c.count }
func (c *Command) Distinct() int { return len(c.requests) }

// Fail gives all requests an error.
func (c *Command) Fail(err error) {
	for _, first := range c.requests {
		for r := first; r != nil; r = r.same {
			r.Err = err
		}
	}
}

// Prepare makes Cmd, the EVALSHA that decides the requests. It is valid until the
// command is reset. skew is how far ahead of the clock a state's last moment may be, in
// microseconds. clock is empty, or in tests the script's clock in microseconds since
// the Unix epoch. at returns a moment, in microseconds too: of a limit by calendar the
// script gets the window that contains it, and the one after that. A request that was
// answered with Elsewhen, and is alone, chooses the moment itself.
func (c *Command) Prepare(ctx context.Context, skew, clock string, at func() int64) {
	for _, r := range c.requests {
		c.encode(r, at)
	}
	for _, key := range c.keyList {
		c.strings = append(c.strings, stringOf(key))
	}
	c.strings = append(c.strings, skew, stringOf(c.limitBytes), stringOf(c.input))
	if clock != "" {
		c.strings = append(c.strings, clock)
	}
	// The client writes a *string without the allocation that a string or a
	// []byte in an interface costs.
	c.args = append(c.args[:0], "evalsha", &SHA, len(c.keyList))
	for i := range c.strings {
		c.args = append(c.args, &c.strings[i])
	}
	c.Cmd = redis.NewIntSliceCmd(ctx, c.args...)
}

// PrepareEval turns Cmd into an EVAL, for a server that does not have the script.
func (c *Command) PrepareEval(ctx context.Context) {
	c.args[0], c.args[1] = "eval", &Source
	c.Cmd = redis.NewIntSliceCmd(ctx, c.args...)
}

// stringOf returns a string in the memory of text, which is not written until the command
// is reset.
func stringOf(text []byte) string { return unsafe.String(unsafe.SliceData(text), len(text)) }

// encode appends a request and the number of its equals, as the script reads them.
func (c *Command) encode(r *Group, at func() int64) {
	if r.Mode == Settle {
		c.encodeSettle(r, at)
		return
	}
	mode, count := r.Mode, 0
	if mode == Take && r.hasRoles() {
		mode = takeByRole
	}
	for same := r; same != nil; same = same.same {
		count++
	}
	sent, hasHolders := mode, r.hasHolders()
	if hasHolders {
		sent += byHolder
	}
	isReserved := r.Named != nil && mode != Check && mode != Pause
	if isReserved {
		sent += reserves
	}
	c.input = appendNumbers(c.input, int64(sent), int64(count), int64(len(r.Hits)))
	for i := range r.Hits {
		h := &r.Hits[i]
		c.input = appendNumbers(c.input, c.key(h.Key, r.Hashes[i]), c.limit(h.Limit, at), h.Cost)
		switch mode {
		case GiveBack:
			c.input = appendNumbers(c.input, r.Decisions[i].At)
		case takeByRole, Pause:
			c.input = appendNumbers(c.input, int64(h.Role))
		}
		if hasHolders {
			c.input = appendNumbers(c.input, int64(len(h.Holder)))
			c.input = append(c.input, h.Holder...)
		}
		if isReserved {
			c.encodeBill(r, i)
		}
	}
}

// encodeBill appends what a hit of a take with an ID ends with.
func (c *Command) encodeBill(r *Group, i int) {
	n := r.Named
	c.input = appendNumbers(c.input, c.hashedKey(&n.Places[i].Key), c.hashedKey(&n.Places[i].Reset), r.Hits[i].Limit.Pace(), n.Lasts.Microseconds())
}

// encodeSettle appends a Settle.
func (c *Command) encodeSettle(r *Group, at func() int64) {
	c.input = appendNumbers(c.input, int64(Settle), 1, int64(len(r.Hits)))
	for i := range r.Hits {
		h, bill := &r.Hits[i], &r.Named.Places[i]
		unit := max(1, h.Limit.Unit) // windows count in costs
		c.input = appendNumbers(c.input, c.key(h.Key, r.Hashes[i]), c.limit(h.Limit, at), h.Cost,
			c.hashedKey(&bill.Key), c.hashedKey(&bill.Reset), h.Limit.Pace(), unit)
	}
}

func (c *Command) hashedKey(k *HashedKey) int64 { return c.key(k.Text, k.Hash) }

// key returns the index of a key in KEYS, which begins at 1.
func (c *Command) key(key []byte, hash uint64) int64 {
	i, isNew := c.keys.find(hash, func(i int) bool { return string(c.keyList[i]) == string(key) })
	if isNew {
		c.keyList = append(c.keyList, key)
	}
	return int64(i) + 1
}

// limit returns the index of a limit in the script's second argument, which begins at
// 1.
func (c *Command) limit(l *bucket.Limit, at func() int64) int64 {
	if len(c.limitList) == 1 && c.limitList[0] == l { // as in most commands
		return 1
	}
	i, isNew := c.limits.find(maphash.Comparable(c.seed, l), func(i int) bool { return c.limitList[i] == l })
	if isNew {
		c.limitList = append(c.limitList, l)
		if l.Calendar.Unit != bucket.NoCalendar {
			c.limitBytes = appendLimitByCalendar(c.limitBytes, l, c.windowsAt(at))
		} else {
			c.limitBytes = appendLimit(c.limitBytes, l)
		}
	}
	return int64(i) + 1
}

// windowsAt returns a moment in the first windows that the script gets.
func (c *Command) windowsAt(at func() int64) int64 {
	if first := c.requests[0]; c.count == 1 && first.Elsewhen != 0 {
		return first.Elsewhen
	}
	return at()
}
