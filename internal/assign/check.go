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
)

// MaxMoment is the latest time in microseconds since the Unix epoch, in the year 2255:
// the most that a Redis script counts exactly.
const MaxMoment = 1<<53 - 1

// Ended reports whether an assignment has ended by now, in microseconds since the
// Unix epoch.
func (a *Assignment) Ended(now int64) bool { return ended(a.LastEnd(), now) }

func ended(until, now int64) bool { return until != 0 && until <= now }

// Check returns why an assignment is invalid, or nil. The error has one line per mistake:
// where it is, what was found and what is allowed. However large the assignment is, the
// error has only some kilobytes.
func (a *Assignment) Check() error {
	c := checker{}
	c.subject(&a.Subject)
	if !a.Blocked && !a.HasMore() {
		c.bad("assignment", "none of plan, numbers, calendar, unlimited and blocked", "one or more of them")
	}
	c.terms(&a.Terms)
	c.ends(a)
	c.moment("made_at", a.At)
	c.text("reason", a.Reason)
	c.text("made_by", a.By)
	return joined(c)
}

// Check returns why a subject is invalid, or nil, as Assignment.Check does.
func (s *Subject) Check() error {
	c := checker{}
	c.subject(s)
	return joined(c)
}

// Canonical returns a with its numbers sorted by the limit's name.
func (a Assignment) Canonical() Assignment {
	byLimit := func(a, b Numbers) int { return strings.Compare(a.Limit, b.Limit) }
	if !slices.IsSortedFunc(a.Numbers, byLimit) {
		order := make([]int, len(a.Numbers))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(i, j int) int { return byLimit(a.Numbers[i], a.Numbers[j]) })
		numbers, ends := make([]Numbers, len(order)), make([]int64, len(order))
		for to, from := range order {
			numbers[to], ends[to] = a.Numbers[from], a.NumbersEnd(from)
		}
		a.Numbers, a.NumbersUntil = numbers, ends
	}
	if len(a.Numbers) == 0 {
		a.Numbers = nil
	}
	a.NumbersUntil = someEnds(a.NumbersUntil)
	return a
}

// equal reports whether two canonical terms say the same.
func (t *Terms) equal(o *Terms) bool {
	return t.Plan == o.Plan && t.Calendar == o.Calendar && t.Unlimited == o.Unlimited && t.Blocked == o.Blocked && slices.Equal(t.Numbers, o.Numbers)
}

// checker collects mistakes.
type checker []error

func joined(c checker) error { return errors.Join(c...) }

func (c *checker) bad(where, found, allowed string) {
	*c = append(*c, fmt.Errorf("%s: found %s; allowed: %s", where, found, allowed))
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

func (c *checker) domain(name string) {
	if name == "" {
		c.bad("domain", "an empty text", "the name of a domain")
	}
	c.utf8("domain", name)
}

func (c *checker) subject(s *Subject) {
	c.domain(s.Domain)
	c.inRange("entries", int64(len(s.Entries)), 1, MaxEntries)
	if len(s.Entries) > MaxEntries {
		return
	}
	size := len(s.Domain)
	for i, e := range s.Entries {
		if e.Key == "" {
			c.bad(fmt.Sprintf("entries[%d].key", i), "an empty text", "the key of an entry")
		}
		if !utf8.ValidString(e.Key) {
			c.utf8(fmt.Sprintf("entries[%d].key", i), e.Key)
		}
		if !utf8.ValidString(e.Value) {
			c.utf8(fmt.Sprintf("entries[%d].value", i), e.Value)
		}
		size += len(e.Key) + len(e.Value)
	}
	if size > MaxSubject {
		c.bad("entries", fmt.Sprintf("%d bytes", size), fmt.Sprintf("at most %d, the domain's among them", MaxSubject))
	}
}

func (c *checker) terms(t *Terms) {
	c.text("plan", t.Plan)
	c.textOf("calendar.time_zone", t.Calendar.TimeZone, maxCalendarText)
	c.textOf("calendar.starts", t.Calendar.Starts, maxCalendarText)
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
	}
}

// ends checks that what has an end exists, and that it ends at a valid time.
func (c *checker) ends(a *Assignment) {
	for _, e := range []struct {
		where string
		until int64
		part  string
		has   bool
	}{
		{where: "plan_until", until: a.PlanUntil, part: "plan", has: a.Plan != ""},
		{where: "calendar.until", until: a.CalendarUntil, part: "calendar", has: a.Calendar != (Calendar{})},
		{where: "unlimited_until", until: a.UnlimitedUntil, part: "unlimited", has: a.Unlimited},
		{where: "blocked_until", until: a.BlockedUntil, part: "blocked", has: a.Blocked},
	} {
		if e.until != 0 && !e.has {
			c.bad(e.where, "it without "+e.part, "both")
		}
		c.moment(e.where, e.until)
	}
	if len(a.Numbers) > MaxNumbers {
		return // already reported
	}
	for i, until := range a.NumbersUntil {
		if i >= len(a.Numbers) {
			c.bad("numbers", fmt.Sprintf("%d ends", len(a.NumbersUntil)), "as many as numbers")
			return
		}
		c.moment(fmt.Sprintf("numbers[%d].until", i), until)
	}
}

// text checks a text of at most MaxText bytes.
func (c *checker) text(where, s string) { c.textOf(where, s, MaxText) }

// textOf checks a text of at most so many bytes.
func (c *checker) textOf(where, s string, maxBytes int) {
	if len(s) > maxBytes {
		c.bad(where, fmt.Sprintf("%d bytes", len(s)), fmt.Sprintf("at most %d", maxBytes))
		return
	}
	c.plain(where, s)
}

// shown bounds how many characters of a text an error repeats.
const shown = 100

// utf8 checks a text of a subject, which is whatever callers may send.
func (c *checker) utf8(where, s string) {
	if !utf8.ValidString(s) {
		c.bad(where, fmt.Sprintf("%.*q", shown, s), "UTF-8")
	}
}

// plain checks a text written by a person.
func (c *checker) plain(where, s string) {
	c.utf8(where, s)
	if utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) >= 0 {
		c.bad(where, fmt.Sprintf("%.*q", shown, s), "a text without control characters")
	}
}
