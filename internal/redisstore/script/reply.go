package script

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// These marks replace decisions in the script's reply. Any other number there is the
// first one of a decision: the time until the limit is full again, times eight, plus
// how many numbers follow. Zeros at the end of those are left out.
const (
	replyUnreadable = -1 // a state of the request cannot be read
	replyElsewhen   = -2 // the request needs windows about the moment that follows
	replySame       = 0  // all further ones of the equal requests got the same
	replyDone       = 8  // the request was given back or settled
)

// The minimum and the maximum of numbers that follow the first one of a decision.
const (
	minFollowing = 1
	maxFollowing = 4
)

// ErrUnreadable is the error of a request with a key that holds something other than
// a state of its algorithm.
var ErrUnreadable = errors.New("redis: a key holds a state that cannot be read")

// ErrElsewhen is the error of a request that was not decided, since a limit by calendar
// came with windows that the script's clock is not in. Elsewhen is then a moment whose
// windows it needs. Nothing of it was charged, so it may be sent again.
var ErrElsewhen = errors.New("redis: its clock is outside of the windows of a limit by calendar")

const (
	// maxNumber bounds the script's numbers, which are doubles.
	maxNumber = 1 << 53
	// maxMicros is the longest time in microseconds.
	maxMicros = math.MaxInt64 / int64(time.Microsecond)
)

// Heading is the beginning of the script's reply.
type Heading struct {
	Clock  int64 // when it ran, in microseconds since the Unix epoch
	Mended int64 // how many states it met that a wrong clock had written
}

// Decode reads the script's reply into the decisions and errors of all requests. An
// error means that the reply is not the script's, so nothing is known about any
// request.
func (c *Command) Decode(reply []int64) (Heading, error) {
	r := reader{reply: reply, requests: len(c.requests)}
	h := Heading{Clock: r.number(0, maxNumber), Mended: r.number(0, maxNumber)}
	for _, first := range c.requests {
		r.equals(h.Clock, first)
	}
	if r.at < len(reply) {
		r.misfits()
	}
	if r.err != nil {
		return Heading{}, r.err
	}
	return h, nil
}

// reader reads numbers of a reply one after the other. After an error all are 0.
type reader struct {
	reply    []int64
	at       int
	requests int // distinct ones
	// seq is the number of requests read so far, which the script decided in this
	// order.
	seq uint32
	err error // the first one
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("the script's reply "+format, args...)
	}
}

func (r *reader) misfits() {
	r.fail("of %d numbers does not fit %d requests", len(r.reply), r.requests)
}

// next reads a number.
func (r *reader) next() int64 {
	if r.err != nil {
		return 0
	}
	if r.at == len(r.reply) {
		r.misfits()
		return 0
	}
	r.at++
	return r.reply[r.at-1]
}

// number reads a number from low to high.
func (r *reader) number(low, high int64) int64 {
	n := r.next()
	if r.err == nil && (n < low || n > high) {
		r.fail("holds %d, where a number from %d to %d is expected", n, low, high)
	}
	return n
}

// equals reads the results of equal requests.
func (r *reader) equals(clock int64, first *Group) {
	var before *Group
	for q := first; q != nil && r.err == nil; q = q.same {
		mark := r.next()
		switch {
		case mark == replySame && before != nil:
			for ; q != nil; q = q.same {
				q.Err, q.Elsewhen = before.Err, before.Elsewhen
				copy(q.Decisions, before.Decisions)
				r.count(q)
			}
			return
		case mark == replyUnreadable:
			q.Err = ErrUnreadable
		case mark == replyElsewhen:
			q.Err, q.Elsewhen = ErrElsewhen, r.number(0, maxNumber)
		case (q.Mode == Settle || q.Mode == GiveBack) && mark != replyDone:
			r.fail("holds %d for a request to give back or settle", mark)
		case q.Mode == Settle:
			r.settled(clock, q)
		case q.Mode == GiveBack:
			for i := range q.Decisions {
				q.Decisions[i].At = clock
			}
		default:
			r.decisions(clock, mark, q)
			if q.Mode != Check {
				q.settleRemaining()
			}
		}
		r.count(q)
		before = q
	}
}

// count sets the Seq of the decisions of the next request: no other command runs while
// the script does, so its place in the command orders it among all of that moment.
func (r *reader) count(q *Group) {
	r.seq++
	for i := range q.Decisions {
		q.Decisions[i].Seq = r.seq
	}
	if q.Mode == Settle {
		for i := range q.Named.Settled {
			q.Named.Settled[i].Seq = r.seq
		}
	}
}

// settleRemaining moves to RoomBefore what remained before a hit, if the script reports
// that instead of what remains after it.
func (r *Group) settleRemaining() {
	for i := range r.Decisions {
		d, h := &r.Decisions[i], &r.Hits[i]
		if !d.Allowed() && h.Limit.ChargedAnyway(h.Cost) {
			d.RoomBefore, d.Remaining = d.Remaining, 0
		}
	}
}

// decisions reads the decisions of one request, whose first number was already read.
func (r *reader) decisions(clock, first int64, q *Group) {
	for i := range q.Decisions {
		if i > 0 {
			first = r.next()
		}
		reset, following := first>>3, first&7
		if reset < 0 || following < minFollowing || following > maxFollowing {
			r.fail("holds %d, where the first number of a decision is expected", first)
			return
		}
		var numbers [maxFollowing]int64
		for j := range following {
			numbers[j] = r.next()
		}
		d := &q.Decisions[i]
		*d = r.decision(clock, reset, numbers)
		if d.Wait != 0 && q.Hits[i].Limit.BlockFor > 0 {
			n := d.Wait.Microseconds() // twice what is left of a pause, and 1 more if it began
			d.Wait, d.Paused, d.PauseBegan = 0, time.Duration(n/2)*time.Microsecond, n%2 == 1
		}
		if (d.Wait != 0 || d.At != clock) && q.Hits[i].Limit.Algorithm.HasHolders() {
			d.Ahead = uint32(max(0, d.At-clock))
			r.settleWait(d, q.Hits[i].Cost)
		}
	}
}

// settleWait moves to Released or Renewal what the script reports in the place of a Wait
// where a holder was allowed a cost.
func (r *reader) settleWait(d *bucket.Decision, cost int64) {
	if !d.Allowed() || d.Wait == 0 {
		return
	}
	what := d.Wait.Microseconds()
	d.Wait = 0
	switch {
	case cost < 0 && what <= int64(bucket.ReleasedTooLate):
		d.Released = bucket.Released(what)
	case cost > 0 && what <= int64(bucket.RenewedSoon):
		d.Renewal = bucket.Renewal(what)
	default:
		r.fail("holds %d, which no take or release finds", what)
	}
}

func (r *reader) decision(clock, reset int64, n [maxFollowing]int64) bucket.Decision {
	remaining, retry, wait, late := n[0], n[1], n[2], n[3]
	if remaining < 0 || remaining > maxNumber || reset > maxMicros || retry < int64(bucket.Unknown) || retry > maxMicros || wait < 0 || wait > maxMicros || late < -clock || late > maxNumber {
		r.fail("holds %v, which is no decision", n)
		return bucket.Decision{}
	}
	d := bucket.Decision{
		Remaining:  remaining,
		RetryAfter: time.Duration(retry), // if it is Never or Unknown
		ResetAfter: time.Duration(reset) * time.Microsecond,
		Wait:       time.Duration(wait) * time.Microsecond,
		At:         clock + late,
	}
	if retry >= 0 {
		d.RetryAfter = time.Duration(retry) * time.Microsecond
	}
	return d
}

// settled reads the results of a Settle, after its mark.
func (r *reader) settled(clock int64, q *Group) {
	for i := range q.Named.Settled {
		s := &q.Named.Settled[i]
		*s = bucket.Settled{At: clock}
		takes := r.number(0, maxNumber)
		if takes == 0 {
			continue
		}
		s.IsKnown, s.Takes = true, takes-1
		s.Returned, s.Added, s.Remaining = r.number(0, maxNumber), r.number(0, maxNumber), r.number(0, maxNumber)
		s.ResetAfter = time.Duration(min(r.number(0, maxNumber), maxMicros)) * time.Microsecond
	}
}
