package fleet

import (
	"strconv"
	"strings"
	"time"
)

// roll says who was recently in the register: see fleet.lua.
type roll struct {
	name string // empty if there is none
	// age is for how long it certainly has existed.
	age time.Duration
	// signIns maps the ID of a daemon to the number of its last sign-in.
	signIns map[string]uint64
}

// parseRoll reads a roll as written by the script. The empty text is no roll.
func parseRoll(text string) (r roll, ok bool) {
	if text == "" {
		return roll{}, true
	}
	head, lines, _ := strings.Cut(text, "\n")
	name, age, _ := strings.Cut(head, " ")
	ms, err := strconv.ParseInt(age, 10, 64)
	if name == "" || err != nil || ms < 0 {
		return roll{}, false
	}
	r = roll{name: name, age: time.Duration(ms) * time.Millisecond, signIns: make(map[string]uint64)}
	for line := range strings.Lines(lines) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		number, err := strconv.ParseUint(fields[min(1, len(fields)-1)], 10, 64)
		if len(fields) != 3 || err != nil {
			return roll{}, false
		}
		r.signIns[fields[0]] = number
	}
	return r, true
}

// plainName is how many digits a roll's name has before those of its node (PLAIN_NAME in
// fleet.lua).
const plainName = 16

// goesOnAs reports whether rolls with these names are the same one, perhaps on different
// nodes: one may then lack the last sign-ins, but no others.
func goesOnAs(name, other string) bool {
	return len(name) >= plainName && len(other) >= plainName && name[:plainName] == other[:plainName]
}

// watch is what a daemon has seen of the rolls, by its own clock.
type watch struct {
	name string
	// since is a time at which the roll of that name certainly existed.
	since time.Time
	// isMoved says that it continues a known one from another node.
	isMoved bool
	// seen maps the ID of a daemon to its last sign-in that was seen.
	seen map[string]seenSignIn
}

type seenSignIn struct {
	number uint64
	first  time.Time // when it was first seen
}

// see notes a roll that was read at a given time.
func (w *watch) see(r roll, now time.Time) {
	if r.name != w.name {
		w.isMoved = goesOnAs(r.name, w.name)
		w.name, w.since = r.name, now
		w.seen = nil // its sign-ins may not be the last ones
	}
	if r.name != "" && now.Add(-r.age).Before(w.since) {
		w.since = now.Add(-r.age)
	}
	seen := make(map[string]seenSignIn, len(r.signIns))
	for id, number := range r.signIns {
		old, known := w.seen[id]
		if !known || old.number != number {
			old = seenSignIn{number: number, first: now}
		}
		seen[id] = old
	}
	w.seen = seen
}

// isGone reports whether a daemon of the roll certainly no longer decides by what it had
// at its last sign-in.
func (w *watch) isGone(id string, now time.Time) bool {
	return now.Sub(w.seen[id].first) >= registrationLives
}

// lacks returns for how long the roll may lack daemons, since it may have replaced one
// that was lost; not at all if it is not positive.
func (w *watch) lacks(now time.Time) time.Duration {
	if w.name == "" {
		return registrationLives
	}
	return registrationLives - now.Sub(w.since)
}
