package script

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// These marks stand in the script's reply in the place of decisions. Any other
// number there is the first one of a decision: what remains, times eight, plus
// how many numbers follow. Zeros at the end of those are left out.
const (
	replyUnreadable = -1 // a state of the group cannot be read
	replySame       = 0  // all further groups of the line got the same
	replyDone       = 8  // the group was given back
)

// The least and the most numbers that follow the first one of a decision.
const (
	minFollowing = 1
	maxFollowing = 4
)

// ErrUnreadable is the error of a group with a key that holds no state, or a
// state of another algorithm.
var ErrUnreadable = errors.New("redis: a key holds a state that cannot be read")

// maxNumber bounds the script's numbers, which are doubles.
const maxNumber = 1 << 53

// Heading is the beginning of the script's reply.
type Heading struct {
	Clock  int64 // when it ran, in microseconds since the Unix epoch
	Mended int64 // how many states it met that a wrong clock had written
}

// Decode reads the script's reply into the decisions and errors of all groups of
// the lines. An error means that the reply is not the script's, and that nothing
// is known about any group.
func Decode(reply []int64, lines []*Group) (Heading, error) {
	r := reader{reply: reply, groups: len(lines)}
	h, err := r.heading()
	if err != nil {
		return Heading{}, err
	}
	for _, first := range lines {
		if err := r.line(h.Clock, first); err != nil {
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
	reply  []int64
	at     int
	groups int
	// seq is the number of groups that were read, which the script decided in this
	// order.
	seq uint32
}

func (r *reader) misfit() error {
	return fmt.Errorf("the script's reply of %d numbers does not fit %d lines", len(r.reply), r.groups)
}

func (r *reader) next() (int64, error) {
	if r.at == len(r.reply) {
		return 0, r.misfit()
	}
	r.at++
	return r.reply[r.at-1], nil
}

func (r *reader) heading() (h Heading, err error) {
	if h.Clock, err = r.next(); err != nil {
		return h, err
	}
	if h.Clock < 0 || h.Clock > maxNumber {
		return h, fmt.Errorf("the script's reply holds %d, where its clock is expected", h.Clock)
	}
	if h.Mended, err = r.next(); err != nil {
		return h, err
	}
	if h.Mended < 0 || h.Mended > maxNumber {
		return h, fmt.Errorf("the script's reply holds %d, where a number of states is expected", h.Mended)
	}
	return h, nil
}

// line reads the results of the equal groups from first on.
func (r *reader) line(clock int64, first *Group) error {
	var before *Group
	for g := first; g != nil; g = g.Same {
		mark, err := r.next()
		if err != nil {
			return err
		}
		switch {
		case mark == replySame && before != nil:
			for ; g != nil; g = g.Same {
				g.Err = before.Err
				copy(g.Decisions, before.Decisions)
				r.number(g)
			}
			return nil
		case mark == replyUnreadable:
			g.Err = ErrUnreadable
		case g.Mode != GiveBack:
			if err := r.decisions(clock, mark, g.Decisions); err != nil {
				return err
			}
			if g.Mode != Check {
				g.settleRemaining()
			}
		case mark != replyDone:
			return fmt.Errorf("the script's reply holds %d for a group given back", mark)
		default:
			for i := range g.Decisions {
				g.Decisions[i].At = clock
			}
		}
		r.number(g)
		before = g
	}
	return nil
}

// number gives the decisions of the next group their Seq: no other command runs while
// the script does, so its place in the command orders it among all of that moment.
func (r *reader) number(g *Group) {
	r.seq++
	for i := range g.Decisions {
		g.Decisions[i].Seq = r.seq
	}
}

// settleRemaining puts what remained before a hit, where the script tells that
// instead of what remains after it, into its place.
func (g *Group) settleRemaining() {
	for i := range g.Decisions {
		d, h := &g.Decisions[i], &g.Hits[i]
		if !d.Allowed() && h.Limit.ChargedAnyway(h.Cost) {
			d.RoomBefore, d.Remaining = d.Remaining, 0
		}
	}
}

// decisions reads the decisions of one group, whose first number was read.
func (r *reader) decisions(clock, first int64, decisions []bucket.Decision) error {
	for i := range decisions {
		var err error
		if i > 0 {
			if first, err = r.next(); err != nil {
				return err
			}
		}
		remaining, following := first>>3, first&7
		if remaining < 0 || following < minFollowing || following > maxFollowing {
			return fmt.Errorf("the script's reply holds %d, where the first number of a decision is expected", first)
		}
		var numbers [maxFollowing]int64
		for j := range following {
			if numbers[j], err = r.next(); err != nil {
				return err
			}
		}
		if decisions[i], err = decodeDecision(clock, remaining, numbers); err != nil {
			return err
		}
	}
	return nil
}

func decodeDecision(clock, remaining int64, n [maxFollowing]int64) (bucket.Decision, error) {
	reset, retry, wait, late := n[0], n[1], n[2], n[3]
	const maxWait = math.MaxInt64 / int64(time.Microsecond)
	if reset < 0 || reset > maxWait || retry < -1 || retry > maxWait || wait < 0 || wait > maxWait || late < -clock || late > maxNumber {
		return bucket.Decision{}, fmt.Errorf("the script's reply holds %v, which is no decision", n)
	}
	d := bucket.Decision{
		Remaining:  remaining,
		RetryAfter: bucket.Never,
		ResetAfter: time.Duration(reset) * time.Microsecond,
		Wait:       time.Duration(wait) * time.Microsecond,
		At:         clock + late,
	}
	if retry >= 0 {
		d.RetryAfter = time.Duration(retry) * time.Microsecond
	}
	return d, nil
}
