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
	h, err := r.heading()
	if err != nil {
		return Heading{}, err
	}
	for _, first := range c.requests {
		if err := r.equals(h.Clock, first); err != nil {
			return Heading{}, err
		}
	}
	if r.at < len(reply) {
		return Heading{}, r.misfit()
	}
	return h, nil
}

// reader reads numbers of a reply one after the other.
type reader struct {
	reply    []int64
	at       int
	requests int // distinct ones
	// seq is the number of requests read so far, which the script decided in this
	// order.
	seq uint32
}

func (r *reader) misfit() error {
	return fmt.Errorf("the script's reply of %d numbers does not fit %d requests", len(r.reply), r.requests)
}

func (r *reader) next() (int64, error) {
	if r.at == len(r.reply) {
		return 0, r.misfit()
	}
	r.at++
	return r.reply[r.at-1], nil
}

// moment reads a moment of the script's clock.
func (r *reader) moment() (int64, error) {
	at, err := r.next()
	if err == nil && (at < 0 || at > maxNumber) {
		return 0, fmt.Errorf("the script's reply holds %d, where a moment of its clock is expected", at)
	}
	return at, err
}

func (r *reader) heading() (h Heading, err error) {
	if h.Clock, err = r.moment(); err != nil {
		return h, err
	}
	if h.Mended, err = r.next(); err != nil {
		return h, err
	}
	if h.Mended < 0 || h.Mended > maxNumber {
		return h, fmt.Errorf("the script's reply holds %d, where a number of states is expected", h.Mended)
	}
	return h, nil
}

// equals reads the results of equal requests.
func (r *reader) equals(clock int64, first *Group) error {
	var before *Group
	for q := first; q != nil; q = q.same {
		mark, err := r.next()
		if err != nil {
			return err
		}
		switch {
		case mark == replySame && before != nil:
			for ; q != nil; q = q.same {
				q.Err, q.Elsewhen = before.Err, before.Elsewhen
				copy(q.Decisions, before.Decisions)
				r.number(q)
			}
			return nil
		case mark == replyUnreadable:
			q.Err = ErrUnreadable
		case mark == replyElsewhen:
			if q.Elsewhen, err = r.moment(); err != nil {
				return err
			}
			q.Err = ErrElsewhen
		case q.Mode == Settle:
			if mark != replyDone {
				return fmt.Errorf("the script's reply holds %d for a request to settle", mark)
			}
			if err := r.settled(clock, q); err != nil {
				return err
			}
		case q.Mode != GiveBack:
			if err := r.decisions(clock, mark, q); err != nil {
				return err
			}
			if q.Mode != Check {
				q.settleRemaining()
			}
		case mark != replyDone:
			return fmt.Errorf("the script's reply holds %d for a request to give back", mark)
		default:
			for i := range q.Decisions {
				q.Decisions[i].At = clock
			}
		}
		r.number(q)
		before = q
	}
	return nil
}

// number sets the Seq of the decisions of the next request: no other command runs while
// the script does, so its place in the command orders it among all of that moment.
func (r *reader) number(q *Group) {
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
func (r *reader) decisions(clock, first int64, q *Group) error {
	for i := range q.Decisions {
		var err error
		if i > 0 {
			if first, err = r.next(); err != nil {
				return err
			}
		}
		reset, following := first>>3, first&7
		if reset < 0 || following < minFollowing || following > maxFollowing {
			return fmt.Errorf("the script's reply holds %d, where the first number of a decision is expected", first)
		}
		var numbers [maxFollowing]int64
		for j := range following {
			if numbers[j], err = r.next(); err != nil {
				return err
			}
		}
		if q.Decisions[i], err = decodeDecision(clock, reset, numbers); err != nil {
			return err
		}
		if d := &q.Decisions[i]; (d.Wait != 0 || d.At != clock) && q.Hits[i].Limit.Algorithm.HasHolders() {
			d.Ahead = uint32(max(0, d.At-clock))
			if err := settleWait(d, q.Hits[i].Cost); err != nil {
				return err
			}
		}
	}
	return nil
}

// settleWait moves to Released or Renewal what the script reports in the place of a Wait
// where a holder was allowed a cost.
func settleWait(d *bucket.Decision, cost int64) error {
	if !d.Allowed() || d.Wait == 0 {
		return nil
	}
	what := d.Wait.Microseconds()
	d.Wait = 0
	switch {
	case cost < 0 && what <= int64(bucket.ReleasedTooLate):
		d.Released = bucket.Released(what)
	case cost > 0 && what <= int64(bucket.RenewedSoon):
		d.Renewal = bucket.Renewal(what)
	default:
		return fmt.Errorf("the script's reply holds %d, which no take or release finds", what)
	}
	return nil
}

func decodeDecision(clock, reset int64, n [maxFollowing]int64) (bucket.Decision, error) {
	remaining, retry, wait, late := n[0], n[1], n[2], n[3]
	if remaining < 0 || remaining > maxNumber || reset > maxMicros || retry < int64(bucket.Unknown) || retry > maxMicros || wait < 0 || wait > maxMicros || late < -clock || late > maxNumber {
		return bucket.Decision{}, fmt.Errorf("the script's reply holds %v, which is no decision", n)
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
	return d, nil
}
