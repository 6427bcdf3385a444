package redisstore

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// What stands in the script's reply where a decided copy of a line may begin.
// Anything else there is the first number of a decision: what remains, times
// eight, and how many numbers follow. Those at the end that are 0 are left out.
const (
	replyUnreadable = -1
	replySame       = 0
	replyDone       = 8
)

const (
	minFollowing = 1
	maxFollowing = 4
)

// errUnreadable is what comes of a group that has a key with a state of another
// kind, or none.
var errUnreadable = errors.New("redis: a key holds a state that cannot be read")

// maxNumber bounds the script's numbers, which are doubles.
const maxNumber = 1 << 53

// heading is what the script's reply begins with.
type heading struct {
	clock  int64 // when it ran, in microseconds since the Unix epoch
	mended int64 // how many states it met that a wrong clock had written
}

// decode reads the script's reply into the groups: lines, and all that are
// linked to them. An error means that the reply is not the script's, and that
// nothing is known about any group.
func decode(reply []int64, lines []*group) (heading, error) {
	r := reader{reply: reply, groups: len(lines)}
	h, err := r.heading()
	if err != nil {
		return heading{}, err
	}
	for _, head := range lines {
		if err := r.line(h.clock, head); err != nil {
			return heading{}, err
		}
	}
	if r.at < len(reply) {
		return heading{}, r.misfit()
	}
	return h, nil
}

// reader reads numbers of a reply one after the other.
type reader struct {
	reply  []int64
	at     int
	groups int
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

func (r *reader) heading() (h heading, err error) {
	if h.clock, err = r.next(); err != nil {
		return h, err
	}
	if h.clock < 0 || h.clock > maxNumber {
		return h, fmt.Errorf("the script's reply holds %d, where its clock is expected", h.clock)
	}
	if h.mended, err = r.next(); err != nil {
		return h, err
	}
	if h.mended < 0 || h.mended > maxNumber {
		return h, fmt.Errorf("the script's reply holds %d, where a number of states is expected", h.mended)
	}
	return h, nil
}

// line reads what came of the equal groups from head on.
func (r *reader) line(clock int64, head *group) error {
	var before *group
	for g := head; g != nil; g = g.same {
		mark, err := r.next()
		if err != nil {
			return err
		}
		switch {
		case mark == replySame && before != nil:
			for ; g != nil; g = g.same {
				g.err = before.err
				copy(g.decisions, before.decisions)
			}
			return nil
		case mark == replyUnreadable:
			g.err = errUnreadable
		case g.mode != giveBack:
			if err := r.decisions(clock, mark, g.decisions); err != nil {
				return err
			}
		case mark != replyDone:
			return fmt.Errorf("the script's reply holds %d for a group given back", mark)
		}
		before = g
	}
	return nil
}

// decisions reads those of one group, of which the first number was read.
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
