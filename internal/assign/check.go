package assign

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/zone"
)

// MaxMoment is the latest time in microseconds since the Unix epoch, in the year 2255:
// the most that a Redis script counts exactly.
const MaxMoment = 1<<53 - 1

// Check returns why an assignment is invalid, or nil. The error has one line per mistake:
// where it is, what was found and what is allowed. However large the assignment is, the
// error has only some kilobytes.
func (a *Assignment) Check() error {
	c := checker{}
	c.subject(&a.Subject)
	if a.IsEmpty() {
		c.bad("assignment", "none of "+partNames, "one or more of them")
	}
	c.layers(a)
	return errors.Join(c.all...)
}

const partNames = "plan, numbers, calendar, unlimited and blocked"

// Check returns why a subject is invalid, or nil, as Assignment.Check does.
func (s *Subject) Check() error {
	c := checker{}
	c.subject(s)
	return errors.Join(c.all...)
}

// Check returns why a change is not valid, or nil, as Assignment.Check does.
func (c *Change) Check() error {
	k := checker{}
	k.subject(&c.Subject)
	k.text("reason", c.Reason)
	k.text("made_by", c.By)
	k.inRange("remove_limits", int64(len(c.Remove.Limits)), 0, MaxNumbers)
	for i, name := range c.Remove.Limits[:min(len(c.Remove.Limits), MaxNumbers)] {
		k.text(fmt.Sprintf("remove_limits[%d]", i), name)
	}
	if c.Whole != nil {
		k.layers(c.Whole)
	} else if len(c.Set) == 0 && c.Remove.IsNone() {
		k.bad("assignment", "no part to set or to remove", "one or more of "+partNames)
	}
	k.inRange("set", int64(len(c.Set)), 0, maxSet)
	for i := range min(len(c.Set), maxSet) {
		if k.at = ""; len(c.Set) > 1 {
			k.at = fmt.Sprintf("set[%d].", i)
		}
		k.layer(&c.Set[i])
		k.calendar(c.Set[i].Calendar)
	}
	return errors.Join(k.all...)
}

// maxSet bounds the layers of a change: a base, and as many layers as there may be.
const maxSet = MaxLayers + 2

// checker collects mistakes.
type checker struct {
	all []error
	// at is what precedes each place.
	at string
}

func (c *checker) bad(where, found, allowed string) {
	c.all = append(c.all, fmt.Errorf("%s%s: found %s; allowed: %s", c.at, where, found, allowed))
}

// inRange checks a number.
func (c *checker) inRange(where string, n, minN, maxN int64) {
	if n < minN || n > maxN {
		c.bad(where, strconv.FormatInt(n, 10), fmt.Sprintf("%d to %d", minN, maxN))
	}
}

// moment checks a time in microseconds since the Unix epoch.
func (c *checker) moment(where string, micros int64) {
	if micros < 0 || micros > MaxMoment {
		text := func(micros int64) string { return time.UnixMicro(micros).UTC().Format(time.RFC3339) }
		c.bad(where, text(micros), text(0)+" to "+text(MaxMoment))
	}
}

func (c *checker) subject(s *Subject) {
	if s.Domain == "" {
		c.bad("domain", "an empty text", "the name of a domain")
	}
	c.utf8("domain", s.Domain)
	c.inRange("entries", int64(len(s.Entries)), 1, MaxEntries)
	if len(s.Entries) > MaxEntries {
		return
	}
	size := len(s.Domain)
	for i, e := range s.Entries {
		if e.Key == "" {
			c.bad(fmt.Sprintf("entries[%d].key", i), "an empty text", "the key of an entry")
		}
		c.utf8(fmt.Sprintf("entries[%d].key", i), e.Key)
		c.utf8(fmt.Sprintf("entries[%d].value", i), e.Value)
		size += len(e.Key) + len(e.Value)
	}
	if size > MaxSubject {
		c.bad("entries", fmt.Sprintf("%d bytes", size), fmt.Sprintf("at most %d, the domain's among them", MaxSubject))
	}
}

func (c *checker) terms(t *Terms) {
	c.text("plan", t.Plan)
	c.text("calendar.time_zone", t.Calendar.TimeZone)
	c.text("calendar.starts", t.Calendar.Starts)
	if n := len(t.Numbers); n > MaxNumbers {
		c.bad("numbers", strconv.Itoa(n), fmt.Sprintf("at most %d", MaxNumbers))
		return
	}
	for i, n := range t.Numbers {
		where := fmt.Sprintf("numbers[%d]", i)
		if slices.ContainsFunc(t.Numbers[:i], func(earlier Numbers) bool { return earlier.Limit == n.Limit }) {
			c.bad(where+".limit", fmt.Sprintf("the limit %.*q twice", shown, n.Limit), "each limit once")
		}
		c.text(where+".limit", n.Limit)
		c.inRange(where+".requests", n.Requests, 0, bucket.MaxRequests)
		c.inRange(where+".burst", n.Burst, 0, bucket.MaxRequests)
		if n.Period != 0 && (n.Period < bucket.MinPeriod || n.Period > bucket.MaxPeriod || n.Period%bucket.MinPeriod != 0) {
			c.bad(where+".period", n.Period.String(), fmt.Sprintf("%s to %d days in whole milliseconds, or none for the limit's own",
				bucket.MinPeriod, bucket.MaxPeriod/(24*time.Hour)))
		}
		if n.BlockFor != 0 && !bucket.IsBlockFor(n.BlockFor) {
			c.bad(where+".block_for", n.BlockFor.String(), bucket.AllowedBlockFor+", or none for the limit's own")
		}
	}
}

// layers checks the base and the layers of an assignment.
func (c *checker) layers(a *Assignment) {
	if a.Base.Until != 0 {
		c.bad("until", "an end of the base", "none")
	}
	if !a.Base.IsEmpty() {
		c.layer(&a.Base)
	}
	if n := len(a.Layers); n > MaxLayers+1 || a.reliefs() > MaxLayers {
		c.bad("layers", strconv.Itoa(n), fmt.Sprintf("at most %d, and one that only blocks", MaxLayers))
		return
	}
	for i := range a.Layers {
		c.at = fmt.Sprintf("layers[%d].", i)
		if a.Layers[i].Until == 0 {
			c.bad("until", "none", "the end of a temporary layer")
		}
		c.layer(&a.Layers[i])
	}
	c.at = ""
	if len(c.all) > 0 {
		return
	}
	if n := len(a.Now().Numbers); n > MaxNumbers {
		c.bad("numbers", fmt.Sprintf("%d limits", n), fmt.Sprintf("at most %d, in all layers", MaxNumbers))
	}
}

// layer checks a layer that says something.
func (c *checker) layer(l *Layer) {
	if l.IsEmpty() {
		c.bad("assignment", "none of "+partNames, "one or more of them")
	}
	c.terms(&l.Terms)
	c.moment("until", l.Until)
	c.moment("made_at", l.At)
	c.text("reason", l.Reason)
	c.text("made_by", l.By)
}

// calendar checks that a change names a zone and starts. A stored Calendar may name some
// that a later version knows: its rest must take effect all the same.
func (c *checker) calendar(of Calendar) {
	if of.TimeZone != "" {
		_, err := zone.Load(of.TimeZone)
		var unknown *zone.UnknownError
		if errors.As(err, &unknown) {
			c.bad("calendar.time_zone", unknown.Found(), unknown.Allowed())
		}
	}
	if _, units := bucket.ParseStarts(of.Starts); of.Starts != "" && len(units) == 0 {
		c.bad("calendar.starts", fmt.Sprintf("%.*q", shown, of.Starts), bucket.AllowedStarts(bucket.NoCalendar))
	}
}

// text checks a text that a person wrote.
func (c *checker) text(where, s string) {
	switch {
	case len(s) > MaxText:
		c.bad(where, fmt.Sprintf("%d bytes", len(s)), fmt.Sprintf("at most %d", MaxText))
	case c.utf8(where, s) && strings.IndexFunc(s, unicode.IsControl) >= 0:
		c.bad(where, fmt.Sprintf("%.*q", shown, s), "a text without control characters")
	}
}

// shown bounds how many characters of a text an error repeats.
const shown = 100

// utf8 checks a text of a subject, which is whatever callers may send, and reports whether
// it is valid.
func (c *checker) utf8(where, s string) bool {
	isValid := utf8.ValidString(s)
	if !isValid {
		c.bad(where, fmt.Sprintf("%.*q", shown, s), "UTF-8")
	}
	return isValid
}
