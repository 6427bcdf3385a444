package decisionlog

import "strings"

// Reader reads lines one after the other, as Line.ReadJSON does, and faster: what it has
// read of the last line it does not read again where the next one has the same bytes. Its
// zero value is ready.
type Reader struct {
	// head are the fields from api to domain of a line before, as they stand in it, and
	// what they say.
	head                string
	api, limits, domain string
	// minute is the time of a line before up to its minute, which is minuteAt.
	minute   [minuteLength]byte
	minuteAt int64
}

// minuteLength is that of a time up to its minute.
const minuteLength = len("2026-11-23T00:00")

// Head is what orders a line.
type Head struct {
	// At, Seq and Kind are those of the line.
	At   int64
	Seq  uint32
	Kind Kind
	// rest is where the line goes on behind them; 0 if they were not read as
	// AppendJSON writes them.
	rest int
}

// Head reads the head of a line. Its error is that of Line.ReadJSON, but it may find
// none in a line that Read refuses.
func (r *Reader) Head(line []byte) (Head, error) {
	c := cursor{b: line, reader: r}
	var l Line
	if l.readHead(&c) {
		return Head{l.At, l.Seq, l.Kind, c.i}, nil
	}
	err := l.readAny(line)
	return Head{At: l.At, Seq: l.Seq, Kind: l.Kind}, err
}

// Read reads the line whose head h is, as Line.ReadJSON does.
func (r *Reader) Read(l *Line, line []byte, h Head) error {
	c := cursor{b: line, i: h.rest, reader: r}
	l.reset()
	if l.At, l.Seq, l.Kind = h.At, h.Seq, h.Kind; h.rest > 0 && l.readRest(&c) {
		return nil
	}
	l.reset()
	return l.readAny(line)
}

// readDomain reads the fields from api to domain.
func (l *Line) readDomain(c *cursor) bool {
	r := c.reader
	if r != nil && r.head != "" && c.literal(r.head) {
		l.API, l.Limits, l.Domain = r.api, r.limits, r.domain
		return true
	}
	start := c.i
	if !c.optionalText(`,"api":"`, &l.API) || !c.optionalText(`,"limits":"`, &l.Limits) || !c.optionalText(`,"domain":"`, &l.Domain) {
		return false
	}
	// Without a domain, a line that begins alike may go on with one.
	if r != nil && l.Domain != "" {
		r.head = string(c.b[start:c.i])
		r.api, r.limits, r.domain = strings.Clone(l.API), strings.Clone(l.Limits), strings.Clone(l.Domain)
	}
	return true
}

// moment is parseMoment, which it asks once a minute of the log.
func (r *Reader) moment(b *[timeLength]byte) (at int64, ok bool) {
	minute := (*[minuteLength]byte)(b[:])
	if *minute != r.minute || r.minuteAt == 0 {
		at, ok = parseMoment(b)
		if ok {
			r.minute, r.minuteAt = *minute, at-at%60e6
		}
		return at, ok
	}
	var worst byte
	micros := int64(0)
	for _, d := range b[20:26] {
		worst = max(worst, d-'0')
		micros = 10*micros + int64(d-'0')
	}
	second := int64(b[17]-'0')*10 + int64(b[18]-'0')
	if max(worst, b[17]-'0', b[18]-'0') > 9 || second > 59 || b[16] != ':' || b[19] != '.' || b[26] != 'Z' {
		return 0, false
	}
	return r.minuteAt + second*1e6 + micros, true
}
