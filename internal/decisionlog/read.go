package decisionlog

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// LineError says what is wrong with a line.
type LineError struct {
	// Field is where, as "descriptors[0].cost"; empty for the line as a whole.
	Field          string
	Found, Allowed string
}

// Error implements error.
func (e *LineError) Error() string {
	where := ""
	if e.Field != "" {
		where = e.Field + ": "
	}
	return fmt.Sprintf("%sfound %s; allowed: %s", where, e.Found, e.Allowed)
}

// ReadJSON reads a line without its end. Its texts share the memory of line, which
// must not change while they are in use; its slices are used again by the next
// ReadJSON. A decision as AppendJSON writes it is read without allocating, unless it
// has escaped texts or numbers of its own; the same fields in another order or
// spelling, and others beside them, are read too. The error is a *LineError.
func (l *Line) ReadJSON(line []byte) error {
	c := cursor{b: line}
	if l.reset(); l.read(&c) {
		return nil
	}
	l.reset()
	return l.readAny(line)
}

// reset empties the line and keeps the memory of its slices.
func (l *Line) reset() {
	*l = Line{Descriptors: l.Descriptors[:0], Files: l.Files[:0]}
}

// readHead reads what comes before api.
func (l *Line) readHead(c *cursor) bool {
	if !c.literal(`{"v":1,"`) {
		return false
	}
	if c.literal(`kind":"`) {
		word := ""
		if !c.text(&word) || !c.literal(`,"`) {
			return false
		}
		i := slices.Index(kindWords[:], word)
		if i <= 0 {
			return false
		}
		l.Kind = Kind(i)
	}
	return c.literal(`time":"`) && c.moment(&l.At) && l.At <= maxMoment && c.seq(&l.Seq)
}

// maxMoment is the latest moment of a line, far under 2^53: the arithmetic of limits
// adds periods to it.
const maxMoment = 1 << 52

// seq reads a seq if there is one.
func (c *cursor) seq(to *uint32) bool {
	n := int64(0)
	if !c.optional(`,"seq":`, &n) || n < 0 || n > math.MaxUint32 {
		return false
	}
	*to = uint32(n)
	return true
}

// optional reads a number behind a name, if the name stands here.
func (c *cursor) optional(name string, to *int64) bool {
	return !c.field(name) || c.number(to)
}

// optionalText reads a text behind a name and its quote, if they stand here.
func (c *cursor) optionalText(name string, to *string) bool {
	return !c.field(name) || c.text(to)
}

// result reads a word behind its quote; the first n are allowed.
func (c *cursor) result(to *Result, n int) bool {
	for i, word := range resultWords[:n] {
		if c.literal(word) {
			*to = Result(i)
			return c.literal(`"`)
		}
	}
	return false
}

// read reads a line as AppendJSON writes it.
func (l *Line) read(c *cursor) bool {
	return l.readHead(c) && l.readRest(c)
}

// readRest reads what comes behind the head.
func (l *Line) readRest(c *cursor) bool {
	if !l.readDomain(c) {
		return false
	}
	if c.literal(`,"result":"`) {
		if !c.result(&l.Result, len(resultWords)) {
			return false
		}
	} else if l.Kind != Loaded {
		return false
	}
	if !c.optionalText(`,"code":"`, &l.Code) {
		return false
	}
	l.Degraded = c.field(`,"degraded":true`)
	if !c.optionalText(`,"trace_id":"`, &l.TraceID) {
		return false
	}
	if c.field(`,"descriptors":[`) && !l.readDescriptors(c) {
		return false
	}
	if c.field(`,"files":[`) && !l.readFiles(c) {
		return false
	}
	l.Lossy = c.field(`,"lossy":true`)
	return c.literal(`}`) && c.i == len(c.b)
}

// more returns the slice with one more item, whose own slices are kept by reset.
func more[T any](s []T) []T {
	if len(s) < cap(s) {
		return s[:len(s)+1]
	}
	var zero T
	return append(s, zero)
}

// next passes over what separates items, or ends them.
func (c *cursor) next() (isMore, ok bool) {
	if c.literal(`,`) {
		return true, true
	}
	return false, c.literal(`]`)
}

func (l *Line) readDescriptors(c *cursor) bool {
	for {
		l.Descriptors = more(l.Descriptors)
		d := &l.Descriptors[len(l.Descriptors)-1]
		*d = Descriptor{Entries: d.Entries[:0], Limits: d.Limits[:0]}
		if !d.read(c, l.descriptorResults()) {
			return false
		}
		if isMore, ok := c.next(); !isMore {
			return ok
		}
	}
}

// descriptorResults returns how many results a descriptor of the line may have, from the
// first on: it failed only in a request that failed.
func (l *Line) descriptorResults() int {
	if l.Result == Failed {
		return len(resultWords)
	}
	return int(Failed)
}

// read reads a descriptor that may have the first so many results.
func (d *Descriptor) read(c *cursor, results int) bool {
	if !c.literal(`{"entries":[`) || !d.readEntries(c) ||
		!c.optionalText(`,"rule":"`, &d.Rule) ||
		!c.optionalText(`,"plan":"`, &d.Plan) {
		return false
	}
	d.Unlimited = c.field(`,"unlimited":true`)
	if !c.literal(`,"cost":`) || !c.number(&d.Cost) {
		return false
	}
	d.Reports = c.field(`,"reports":true`)
	d.Doubtful = c.field(`,"doubtful":true`)
	if !c.literal(`,"result":"`) || !c.result(&d.Result, results) ||
		!c.optionalText(`,"refusal":"`, &d.Refusal) {
		return false
	}
	if c.field(`,"limits":[`) {
		for isMore := true; isMore; {
			var ok bool
			if d.Limits = more(d.Limits); !d.Limits[len(d.Limits)-1].read(c) {
				return false
			}
			if isMore, ok = c.next(); !ok {
				return false
			}
		}
	}
	return c.literal(`}`)
}

func (d *Descriptor) readEntries(c *cursor) bool {
	if c.literal(`]`) {
		return true
	}
	for {
		var e bucket.Entry
		if !c.literal(`["`) || !c.text(&e.Key) || !c.literal(`,"`) || !c.text(&e.Value) || !c.literal(`]`) {
			return false
		}
		d.Entries = append(d.Entries, e)
		if isMore, ok := c.next(); !isMore {
			return ok
		}
	}
}

func (l *Limit) read(c *cursor) bool {
	*l = Limit{}
	var retry, reset int64
	if !c.literal(`{"name":"`) || !c.text(&l.Name) ||
		!c.literal(`,"result":"`) || !c.text(&l.Result) ||
		!c.optional(`,"at":`, &l.At) || !c.seq(&l.Seq) ||
		!c.literal(`,"remaining":`) || !c.number(&l.Remaining) ||
		!c.optional(`,"retry_after_us":`, &retry) ||
		!c.optional(`,"reset_after_us":`, &reset) {
		return false
	}
	l.Degraded = c.field(`,"degraded":true`)
	l.Remembered = c.field(`,"remembered":true`)
	if c.field(`,"numbers":{`) {
		l.Numbers = new(Numbers)
		if !l.Numbers.read(c) {
			return false
		}
	}
	return c.optional(`,"taken_at":`, &l.TakenAt) && c.literal(`}`) && l.setSpans(retry, reset)
}

// maxMicros bounds spans in a line, in microseconds.
const maxMicros = math.MaxInt64 / int64(time.Microsecond)

// setSpans sets the spans, given in microseconds, and reports whether all numbers
// are those of a decision.
func (l *Limit) setSpans(retry, reset int64) bool {
	if retry < -1 || retry > maxMicros || reset < 0 || reset > maxMicros || !isMoment(l.At) || !isMoment(l.TakenAt) {
		return false
	}
	l.RetryAfter, l.ResetAfter = bucket.Never, time.Duration(reset)*time.Microsecond
	if retry >= 0 {
		l.RetryAfter = time.Duration(retry) * time.Microsecond
	}
	return true
}

func isMoment(at int64) bool { return at >= 0 && at <= maxMoment }

func (n *Numbers) read(c *cursor) bool {
	var period int64
	if !c.literal(`"algorithm":"`) || !c.text(&n.Algorithm) ||
		!c.optional(`,"requests":`, &n.Requests) ||
		!c.optional(`,"period_us":`, &period) ||
		!c.optional(`,"burst":`, &n.Burst) {
		return false
	}
	n.Assigned = c.field(`,"assigned":true`)
	n.Period = time.Duration(period) * time.Microsecond
	return c.literal(`}`) && period >= 0 && period <= maxMicros
}

func (l *Line) readFiles(c *cursor) bool {
	for {
		var f File
		if !c.literal(`{"name":"`) || !c.text(&f.Name) || !c.optionalText(`,"text":"`, &f.Text) || !c.literal(`}`) {
			return false
		}
		l.Files = append(l.Files, f)
		if isMore, ok := c.next(); !isMore {
			return ok
		}
	}
}
