package decisionlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"github.com/valyala/fastjson"

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

// Reader reads lines one after the other, whatever the order and spelling of their
// fields; it skips those that it does not know. The zero Reader is ready to use.
//
// It uses fastjson, because a replay reads every line: this takes 0.9 us of the 2 us that
// a line takes; with encoding/json it would be 3 us of 4.
type Reader struct{ parser fastjson.Parser }

// maxValues bounds the values of a line, some 100 bytes each while it is read.
const maxValues = 4 << 20

// ReadJSON is Reader.Read for one line, whose texts stay valid.
func (l *Line) ReadJSON(line []byte) error { return new(Reader).Read(l, line) }

// Read reads a line without its newline. Its texts are valid until the next Read or Head,
// and its slices are reused by the next Read into l. The error is a *LineError.
func (r *Reader) Read(l *Line, line []byte) error {
	*l = Line{Descriptors: l.Descriptors[:0], Files: l.Files[:0]}
	if len(line) > maxValues && bytes.Count(line, []byte{','}) > maxValues {
		return &LineError{Found: fmt.Sprintf("more than %d commas", maxValues), Allowed: "as many: each value takes memory"}
	}
	v, err := r.parser.ParseBytes(line)
	if err != nil {
		return syntaxError(line, err)
	}
	if err := l.read(v); err != nil {
		return err
	}
	return nil
}

// Head is what lines are ordered by.
type Head struct {
	// At, Seq and Kind are those of the line.
	At   int64
	Seq  uint32
	Kind Kind
}

// headOfDecision begins a decision as AppendJSON writes it, up to its time.
var headOfDecision = []byte(`{"v":1,"time":"`)

// Head reads the head of a line. Its error is that of Read, but it may find none in a
// line that Read refuses.
func (r *Reader) Head(line []byte) (Head, error) {
	const length = len("2026-11-23T00:00:00.000001Z")
	// Most lines begin like this: parsing all of them here would take as long as reading
	// them.
	if rest, ok := bytes.CutPrefix(line, headOfDecision); ok && len(rest) > length {
		at, err := momentOf(asText(rest[:length]))
		seq, hasSeq := bytes.CutPrefix(rest[length:], []byte(`","seq":`))
		if end := bytes.IndexByte(seq, ','); err == nil && hasSeq && end > 0 {
			if n, err := strconv.ParseUint(asText(seq[:end]), 10, 32); err == nil {
				return Head{At: at, Seq: uint32(n)}, nil
			}
		}
	}
	var l Line
	err := r.Read(&l, line)
	return Head{At: l.At, Seq: l.Seq, Kind: l.Kind}, err
}

// asText returns bytes, which must not change, as a text.
func asText(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// syntaxError says what is wrong with a line that is not JSON.
func syntaxError(line []byte, err error) error {
	const allowed = "an object of JSON on each line, as docs/decisions.md says"
	var syntax *json.SyntaxError // which says where
	switch {
	case !errors.As(json.Unmarshal(line, new(json.RawMessage)), &syntax):
		return &LineError{Found: err.Error(), Allowed: allowed}
	case int(syntax.Offset) >= len(line):
		return &LineError{Found: fmt.Sprintf("a line that ends within its JSON, after %d bytes", len(line)), Allowed: allowed}
	}
	return &LineError{Field: fmt.Sprintf("byte %d", syntax.Offset), Found: syntax.Error(), Allowed: allowed}
}

const (
	// maxMoment is the latest moment of a line, far under 2^53: the arithmetic of limits
	// adds periods to it.
	maxMoment = 1 << 52
	// maxMicros bounds spans in a line, in microseconds.
	maxMicros = math.MaxInt64 / int64(time.Microsecond)
)

const allowedTime = "a time from 1970 to 2112 such as 2026-11-23T00:00:00.000001Z"

// momentOf reads a time.
func momentOf(text string) (at int64, _ *LineError) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if at = t.UnixMicro(); err != nil || at < 0 || at > maxMoment {
		return 0, &LineError{Found: shortQuote(text), Allowed: allowedTime}
	}
	return at, nil
}

func shortQuote(s string) string {
	const maxQuoted = 60
	if len(s) > maxQuoted {
		return strconv.Quote(s[:maxQuoted]) + " and more"
	}
	return strconv.Quote(s)
}

// visit calls read with each field of an object that has a value. It returns the first
// error.
func visit(v *fastjson.Value, read func(name string, v *fastjson.Value) *LineError) (err *LineError) {
	o, wrong := v.Object()
	if wrong != nil {
		return kindError(v, "an object")
	}
	o.Visit(func(key []byte, v *fastjson.Value) {
		if err == nil && v.Type() != fastjson.TypeNull {
			if wrong := read(asText(key), v); wrong != nil {
				err = wrong.in(string(key))
			}
		}
	})
	return err
}

// each calls read with each item of a list. It returns the first error.
func each(v *fastjson.Value, read func(item *fastjson.Value) *LineError) *LineError {
	if v.Type() != fastjson.TypeArray {
		return kindError(v, "a list")
	}
	for i, item := range v.GetArray() {
		if err := read(item); err != nil {
			return err.in(fmt.Sprintf("[%d]", i))
		}
	}
	return nil
}

// in returns the error with the field that it is in.
func (e *LineError) in(name string) *LineError {
	if e.Field != "" && e.Field[0] != '[' {
		name += "."
	}
	return &LineError{Field: name + e.Field, Found: e.Found, Allowed: e.Allowed}
}

func kindError(v *fastjson.Value, allowed string) *LineError {
	return &LineError{Found: "JSON of the kind " + v.Type().String(), Allowed: allowed}
}

func text(to *string, v *fastjson.Value) *LineError {
	if v.Type() != fastjson.TypeString {
		return kindError(v, "a text")
	}
	*to = asText(v.GetStringBytes())
	return nil
}

// number reads a whole number in a range.
func number[T ~int64 | ~uint32](to *T, v *fastjson.Value, minValue, maxValue int64) *LineError {
	n, err := v.Int64()
	switch {
	case v.Type() != fastjson.TypeNumber:
		return kindError(v, "a whole number")
	case err != nil || n < minValue || n > maxValue:
		return &LineError{Found: v.String() + ", which is out of range", Allowed: fmt.Sprintf("a whole number from %d to %d", minValue, maxValue)}
	}
	*to = T(n)
	return nil
}

func share(to *float64, v *fastjson.Value) *LineError {
	var err error
	if *to, err = v.Float64(); err != nil {
		return kindError(v, "a number")
	}
	if *to < 0 || *to > 1 {
		return &LineError{Found: v.String() + ", which is out of range", Allowed: "a number from 0 to 1"}
	}
	return nil
}

// span reads microseconds, at least 0 or, for never, -1.
func span(to *time.Duration, v *fastjson.Value, minMicros int64) *LineError {
	err := number(to, v, minMicros, maxMicros)
	if *to *= time.Microsecond; *to < 0 {
		*to = bucket.Never
	}
	return err
}

func flag(to *bool, v *fastjson.Value) (wrong *LineError) {
	var err error
	if *to, err = v.Bool(); err != nil {
		return kindError(v, "true or false")
	}
	return nil
}

// word reads one of the words as its index.
func word[T Kind | Result](to *T, v *fastjson.Value, words []string) *LineError {
	var s string
	if err := text(&s, v); err != nil {
		return err
	}
	i := slices.Index(words, s)
	if i < 0 {
		return &LineError{Found: shortQuote(s), Allowed: fmt.Sprintf("one of %q", words)}
	}
	*to = T(i)
	return nil
}

func (l *Line) read(v *fastjson.Value) *LineError {
	version := int64(0)
	hasResult := false
	l.At = -1
	err := visit(v, func(name string, v *fastjson.Value) *LineError {
		switch name {
		case "v":
			if err := number(&version, v, 1, math.MaxInt64); err != nil || version <= Version {
				return err
			}
			return &LineError{Found: strconv.FormatInt(version, 10), Allowed: "1; a newer ratelimitd wrote this log"}
		case "kind":
			return word(&l.Kind, v, kindWords[:])
		case "time":
			var s string
			if err := text(&s, v); err != nil {
				return err
			}
			at, err := momentOf(s)
			l.At = at
			return err
		case "seq":
			return number(&l.Seq, v, 0, math.MaxUint32)
		case "api":
			return text(&l.API, v)
		case "limits":
			return text(&l.Limits, v)
		case "domain":
			return text(&l.Domain, v)
		case "id":
			return text(&l.ID, v)
		case "caller":
			return text(&l.Caller, v)
		case "settle_within_us":
			return span(&l.SettleWithin, v, 0)
		case "result":
			hasResult = true
			return word(&l.Result, v, resultWords[:])
		case "code":
			return text(&l.Code, v)
		case "degraded":
			return flag(&l.Degraded, v)
		case "trace_id":
			return text(&l.TraceID, v)
		case "lossy":
			return flag(&l.Lossy, v)
		case "descriptors":
			return each(v, func(item *fastjson.Value) *LineError {
				l.Descriptors = more(l.Descriptors)
				return l.Descriptors[len(l.Descriptors)-1].read(item)
			})
		case "settings":
			l.Settings = new(Settings)
			return l.Settings.read(v)
		case "lost":
			return number(&l.Lost, v, 0, math.MaxInt64)
		case "files":
			return each(v, func(item *fastjson.Value) *LineError {
				l.Files = append(l.Files, File{})
				return l.Files[len(l.Files)-1].read(item)
			})
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case version == 0:
		return &LineError{Field: "v", Found: "none", Allowed: "the version of a line of a decision log, 1"}
	case l.At < 0:
		return &LineError{Field: "time", Found: "none", Allowed: allowedTime}
	case !hasResult && l.Kind.hasResult():
		return &LineError{Field: "result", Found: "none", Allowed: fmt.Sprintf("one of %q", resultWords)}
	}
	for i := range l.Descriptors {
		if l.Descriptors[i].Result == Failed && l.Result != Failed {
			return &LineError{Field: fmt.Sprintf("descriptors[%d].result", i), Found: "error in a request that did not fail", Allowed: fmt.Sprintf("one of %q", resultWords[:Failed])}
		}
	}
	return nil
}

// more returns the slice with one more item, which keeps the memory of its own slices.
func more[T any](s []T) []T {
	if len(s) < cap(s) {
		return s[:len(s)+1]
	}
	var zero T
	return append(s, zero)
}

func (s *Settings) read(v *fastjson.Value) *LineError {
	return visit(v, func(name string, v *fastjson.Value) *LineError {
		switch name {
		case "shadow_mode":
			return flag(&s.ShadowMode, v)
		case "quota_mode":
			return flag(&s.QuotaMode, v)
		case "lenient":
			return flag(&s.Lenient, v)
		case "merge_domains":
			return flag(&s.MergeDomains, v)
		case "unmatched":
			var unmatched Result
			err := word(&unmatched, v, []string{"allow", "deny"})
			s.DenyUnmatched = unmatched > 0
			return err
		case "max_clock_skew_us":
			return span(&s.MaxClockSkew, v, 0)
		case "bounds":
			s.Bounds = new(Bounds)
			return s.Bounds.read(v)
		}
		return nil
	})
}

func (b *Bounds) read(v *fastjson.Value) *LineError {
	return visit(v, func(name string, v *fastjson.Value) *LineError {
		switch name {
		case "per_subject":
			return number(&b.PerSubject, v, 0, math.MaxInt64)
		case "bytes_per_second":
			return number(&b.BytesPerSecond, v, 0, math.MaxInt64)
		case "sample_allowed":
			return share(&b.SampleAllowed, v)
		case "sample_denied":
			return share(&b.SampleDenied, v)
		}
		return nil
	})
}

func (f *File) read(v *fastjson.Value) *LineError {
	return visit(v, func(name string, v *fastjson.Value) *LineError {
		switch name {
		case "name":
			return text(&f.Name, v)
		case "text":
			return text(&f.Text, v)
		}
		return nil
	})
}

func (d *Descriptor) read(v *fastjson.Value) *LineError {
	*d = Descriptor{Entries: d.Entries[:0], Limits: d.Limits[:0]}
	hasResult := false
	err := visit(v, func(name string, v *fastjson.Value) *LineError {
		switch name {
		case "entries":
			return each(v, d.readEntry)
		case "rule":
			return text(&d.Rule, v)
		case "plan":
			return text(&d.Plan, v)
		case "unlimited":
			return flag(&d.Unlimited, v)
		case "cost":
			return number(&d.Cost, v, math.MinInt64, math.MaxInt64)
		case "reports":
			return flag(&d.Reports, v)
		case "kept":
			return flag(&d.Kept, v)
		case "doubtful":
			return flag(&d.Doubtful, v)
		case "result":
			hasResult = true
			return word(&d.Result, v, resultWords[:])
		case "refusal":
			return text(&d.Refusal, v)
		case "limits":
			return each(v, func(item *fastjson.Value) *LineError {
				d.Limits = append(d.Limits, Limit{})
				return d.Limits[len(d.Limits)-1].read(item)
			})
		}
		return nil
	})
	if err == nil && !hasResult {
		return &LineError{Field: "result", Found: "none", Allowed: fmt.Sprintf("one of %q", resultWords)}
	}
	return err
}

func (d *Descriptor) readEntry(v *fastjson.Value) *LineError {
	pair := v.GetArray()
	if len(pair) != 2 || pair[0].Type() != fastjson.TypeString || pair[1].Type() != fastjson.TypeString {
		return &LineError{Found: fmt.Sprintf("%.60s", v.String()), Allowed: "two texts, a key and a value"}
	}
	d.Entries = append(d.Entries, bucket.Entry{Key: asText(pair[0].GetStringBytes()), Value: asText(pair[1].GetStringBytes())})
	return nil
}

func (l *Limit) read(v *fastjson.Value) *LineError {
	*l = Limit{}
	return visit(v, func(name string, v *fastjson.Value) *LineError {
		switch name {
		case "name":
			return text(&l.Name, v)
		case "result":
			return text(&l.Result, v)
		case "at":
			return number(&l.At, v, 0, maxMoment)
		case "seq":
			return number(&l.Seq, v, 0, math.MaxUint32)
		case "remaining":
			return number(&l.Remaining, v, math.MinInt64, math.MaxInt64)
		case "retry_after_us":
			return span(&l.RetryAfter, v, -1)
		case "reset_after_us":
			return span(&l.ResetAfter, v, 0)
		case "paused_us":
			return span(&l.Paused, v, 0)
		case "degraded":
			return flag(&l.Degraded, v)
		case "remembered":
			return flag(&l.Remembered, v)
		case "retry_unknown":
			isUnknown := false
			err := flag(&isUnknown, v)
			if isUnknown {
				l.RetryAfter = bucket.Unknown
			}
			return err
		case "released":
			return text(&l.Released, v)
		case "renewed":
			return flag(&l.Renewed, v)
		case "taken_at":
			return number(&l.TakenAt, v, 0, maxMoment)
		case "returned":
			return number(&l.Returned, v, 0, math.MaxInt64)
		case "added":
			return number(&l.Added, v, 0, math.MaxInt64)
		case "takes":
			return number(&l.Takes, v, 0, math.MaxInt64)
		case "numbers":
			l.Numbers = new(Numbers)
			return l.Numbers.read(v)
		}
		return nil
	})
}

func (n *Numbers) read(v *fastjson.Value) *LineError {
	return visit(v, func(name string, v *fastjson.Value) *LineError {
		switch name {
		case "algorithm":
			return text(&n.Algorithm, v)
		case "requests":
			return number(&n.Requests, v, math.MinInt64, math.MaxInt64)
		case "period_us":
			return span(&n.Period, v, 0)
		case "burst":
			return number(&n.Burst, v, math.MinInt64, math.MaxInt64)
		case "block_for_us":
			return span(&n.BlockFor, v, 0)
		case "calendar":
			return text(&n.Calendar, v)
		case "starts":
			return text(&n.Starts, v)
		case "time_zone":
			return text(&n.TimeZone, v)
		case "assigned":
			return flag(&n.Assigned, v)
		case "apart":
			return flag(&n.Apart, v)
		}
		return nil
	})
}
