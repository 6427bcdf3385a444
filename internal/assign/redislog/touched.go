package redislog

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// A daemon that puts back may find that others have changed a subject since the loss, on
// top of what an older daemon had put back. The parts that they named stay, whatever
// their new value, and the daemon adds the others.

// namedParts are the parts that a change sets or removes.
type namedParts struct {
	// Rest is everything except the block, and Numbers those of all limits.
	Rest    bool     `json:"rest,omitempty"`
	Numbers bool     `json:"numbers,omitempty"`
	Names   []string `json:"names"`
}

// allParts are the parts of a change whose record does not say, being from an earlier
// version.
var allParts = namedParts{Rest: true, Names: []string{assign.PartBlock}}

func (n *namedParts) encode() string {
	text, _ := json.Marshal(n) // cannot fail
	return string(text)
}

func decodeNamed(text string) namedParts {
	var n namedParts
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return allParts
	}
	return n
}

// has reports whether a part is among them, by its name in form 2.
func (n *namedParts) has(part string) bool {
	return n.Rest && part != assign.PartBlock || n.Numbers && strings.HasPrefix(part, assign.PartLimit) || slices.Contains(n.Names, part)
}

func (n *namedParts) add(o *namedParts) {
	n.Rest, n.Numbers = n.Rest || o.Rest, n.Numbers || o.Numbers
	for _, name := range o.Names {
		if !n.has(name) {
			n.Names = append(n.Names, name)
		}
	}
}

func (n *namedParts) hasAll() bool { return n.Rest && n.has(assign.PartBlock) }

// touchedSubject is a subject that was changed since a loss, with the named parts.
type touchedSubject struct {
	assign.Subject
	named namedParts
}

// touch notes a change since the loss.
func (l *lossOf) touch(e *entry) {
	if r := &e.record; len(r.Entries) > 0 {
		l.touchSubject(r.Subject, &e.named)
		return
	}
	of := l.domains[e.record.Domain]
	if of == nil {
		of = new(namedParts)
		l.domains[e.record.Domain] = of
	}
	of.add(&e.named)
}

func (l *lossOf) touchSubject(s assign.Subject, named *namedParts) {
	text := s.Text()
	if l.touched[text] == nil {
		l.touched[text] = &touchedSubject{Subject: s}
	}
	l.touched[text].named.add(named)
}

// putBackParts puts back, for the subjects that were changed since the loss, the parts
// that nobody named. Old daemons could not read every mix: while there are any, such
// subjects stay as they are.
func (s *Store) putBackParts(ctx context.Context, l *lossOf) error {
	texts := slices.Sorted(maps.Keys(l.touched))
	texts = slices.DeleteFunc(texts, func(text string) bool { return l.touched[text].named.hasAll() })
	if len(texts) == 0 {
		return nil
	}
	old := s.old(ctx)
	if len(old.NoParts) > 0 {
		return nil
	}
	l.noCalendar = len(old.NoCalendar) > 0
	for some := range slices.Chunk(texts, maxPutBack) {
		if err := s.putBackPartsOf(ctx, l, some); err != nil {
			l.failed = true
			return err
		}
	}
	return nil
}

func (s *Store) putBackPartsOf(ctx context.Context, l *lossOf, texts []string) error {
	whole, cancel := context.WithTimeout(ctx, s.redis.Timeout())
	defer cancel()
	values, err := s.redis.HMGet(whole, l.tag.assigned, texts...).Result()
	if err != nil {
		return err
	}
	for i, text := range texts {
		touched := l.touched[text]
		own := s.table.Get(touched.Subject)
		var since *assign.Assignment
		if value, isThere := values[i].(string); isThere {
			if since, err = s.decodeField(l.tag, text, value); err != nil {
				continue // it stays, like anything foreign
			}
		}
		if own == nil && (since == nil || l.tag.leftOut.all > 0) {
			continue
		}
		switch mix := mixOf(own, since, &touched.named); {
		case l.noCalendar && mix.Calendar != (assign.Calendar{}):
		case !mix.Blocked && !mix.HasMore():
			l.page = append(l.page, text, "")
		case mix.Check() == nil: // it may have too many numbers
			l.n++
			l.page = append(l.page, text, string(assign.Encode(mix)))
		}
	}
	if len(l.page) >= 2*maxPutBack {
		return s.putBackPage(ctx, l, "")
	}
	return nil
}

// mixOf returns the named parts of what was changed since a loss, and the other parts of
// what this daemon has. One of the two may be nil.
func mixOf(own, since *assign.Assignment, named *namedParts) *assign.Assignment {
	mix := new(assign.Assignment)
	if since != nil {
		*mix = *since
	} else {
		*mix = *own
	}
	mix.Terms, mix.Ends = assign.Terms{}, assign.Ends{}
	add := func(a *assign.Assignment, isNamed bool) {
		if a == nil {
			return
		}
		if named.has(assign.PartPlan) == isNamed {
			mix.Plan, mix.PlanUntil = a.Plan, a.PlanUntil
		}
		if named.has(assign.PartCalendar) == isNamed {
			mix.Calendar, mix.CalendarUntil = a.Calendar, a.CalendarUntil
		}
		if named.has(assign.PartUnlimited) == isNamed {
			mix.Unlimited, mix.UnlimitedUntil = a.Unlimited, a.UnlimitedUntil
		}
		if named.has(assign.PartBlock) == isNamed {
			mix.Blocked, mix.BlockedUntil = a.Blocked, a.BlockedUntil
		}
		for i, n := range a.Numbers {
			if named.has(assign.PartLimit+n.Limit) == isNamed {
				mix.Numbers, mix.NumbersUntil = append(mix.Numbers, n), append(mix.NumbersUntil, a.NumbersEnd(i))
			}
		}
	}
	add(since, true)
	add(own, false)
	*mix = mix.Canonical()
	return mix
}
