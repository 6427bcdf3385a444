package decisionlog

import (
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"unicode/utf8"
	"unsafe"
)

// cursor reads a line as Line.AppendJSON writes it. Each method reports false, or is
// false, where the line goes on in another way; the cursor is of no more use then.
type cursor struct {
	b []byte
	i int
	// reader, if not nil, has what was read of a line before.
	reader *Reader
}

// literal passes over a text that stands here.
func (c *cursor) literal(s string) bool {
	if len(c.b)-c.i < len(s) || string(c.b[c.i:c.i+len(s)]) != s {
		return false
	}
	c.i += len(s)
	return true
}

// field passes over a name in the middle of an object, as ,"seq": that stands here.
// Most names that may stand somewhere do not, and differ in their first letter.
func (c *cursor) field(s string) bool {
	const letter = len(`,"`)
	return c.i+letter < len(c.b) && c.b[c.i+letter] == s[letter] && c.literal(s)
}

// Each byte of a word.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// plain returns how many bytes from here on are printable ASCII and neither a quote
// nor a backslash.
func (c *cursor) plain() int {
	b := c.b[c.i:]
	n := 0
	for ; n+8 <= len(b); n += 8 {
		w := binary.LittleEndian.Uint64(b[n:])
		quote, slash := w^('"'*ones), w^('\\'*ones)
		// A byte that is 0, or less than a blank, borrows into its own highest bit.
		// Borrows reach only bytes behind it, and the first one counts.
		if m := ((quote-ones)&^quote | (slash-ones)&^slash | (w-' '*ones)&^w | w) & highs; m != 0 {
			return n + bits.TrailingZeros64(m)/8
		}
	}
	for n < len(b) && b[n] >= ' ' && b[n] < 0x80 && b[n] != '"' && b[n] != '\\' {
		n++
	}
	return n
}

// text reads a text behind its first quote. Unless the text is escaped it shares the
// line's memory.
func (c *cursor) text(to *string) bool {
	start := c.i
	n := c.plain()
	c.i += n
	if c.i < len(c.b) && c.b[c.i] == '"' {
		c.i++
		*to = unsafe.String(unsafe.SliceData(c.b[start:]), n)
		return true
	}
	return c.odd(start, to)
}

// odd reads a text with an escape or with more than ASCII, whose first quote is
// before start.
func (c *cursor) odd(start int, to *string) bool {
	isEscaped := false
	for c.i < len(c.b) && c.b[c.i] != '"' {
		switch b := c.b[c.i]; {
		case b == '\\':
			isEscaped = true
			c.i += 2
		case b < ' ':
			return false
		default:
			c.i++
		}
	}
	if c.i >= len(c.b) {
		return false
	}
	raw := c.b[start:c.i]
	c.i++
	if !isEscaped && utf8.Valid(raw) {
		*to = unsafe.String(unsafe.SliceData(raw), len(raw))
		return true
	}
	var s string // to itself must not move to the heap
	err := json.Unmarshal(c.b[start-1:c.i], &s)
	*to = s
	return err == nil
}

// number reads a whole number of at most 18 digits.
func (c *cursor) number(to *int64) bool {
	start, isNegative := c.i, false
	if c.i < len(c.b) && c.b[c.i] == '-' {
		isNegative = true
		start++
		c.i++
	}
	n := int64(0)
	for c.i < len(c.b) && c.b[c.i]-'0' <= 9 {
		n = 10*n + int64(c.b[c.i]-'0')
		if c.i++; c.i-start > 18 {
			return false
		}
	}
	digits := c.i - start
	if digits == 0 || digits > 1 && c.b[start] == '0' || c.i < len(c.b) && isFraction(c.b[c.i]) {
		return false
	}
	if isNegative {
		n = -n
	}
	*to = n
	return true
}

func isFraction(b byte) bool { return b == '.' || b == 'e' || b == 'E' }

// timeLength is that of a time in a line.
const timeLength = len("2026-11-23T00:00:00.000001Z")

// moment reads a time behind its first quote.
func (c *cursor) moment(to *int64) bool {
	if len(c.b)-c.i <= timeLength || c.b[c.i+timeLength] != '"' {
		return false
	}
	text := (*[timeLength]byte)(c.b[c.i:])
	c.i += timeLength + 1
	var ok bool
	if c.reader != nil {
		*to, ok = c.reader.moment(text)
	} else {
		*to, ok = parseMoment(text)
	}
	return ok
}

// parseMoment returns a time in microseconds since the Unix epoch, from 1970 on.
func parseMoment(b *[timeLength]byte) (at int64, ok bool) {
	if b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' || b[19] != '.' || b[26] != 'Z' {
		return 0, false
	}
	var worst byte
	digits := func(from, to int) (n int64) {
		for _, d := range b[from:to] {
			worst = max(worst, d-'0')
			n = 10*n + int64(d-'0')
		}
		return n
	}
	year, month, day := digits(0, 4), digits(5, 7), digits(8, 10)
	hour, minute, second, micro := digits(11, 13), digits(14, 16), digits(17, 19), digits(20, 26)
	if worst > 9 || year < 1970 || month < 1 || month > 12 || day < 1 || day > daysOf(year, month) || hour > 23 || minute > 59 || second > 59 {
		return 0, false
	}
	return (((daysSinceEpoch(year, month, day)*24+hour)*60+minute)*60+second)*1e6 + micro, true
}

func daysOf(year, month int64) int64 {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// daysSinceEpoch is days_from_civil of H. Hinnant, "chrono-Compatible Low-Level Date
// Algorithms".
func daysSinceEpoch(year, month, day int64) int64 {
	if month <= 2 {
		year--
	}
	era := year / 400
	ofEra := year - era*400
	ofYear := (153*((month+9)%12)+2)/5 + day - 1
	return era*146097 + ofEra*365 + ofEra/4 - ofEra/100 + ofYear - 719468
}
