package decisionlog

import (
	"encoding/hex"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// The words of kinds and results in lines.
var (
	kindWords   = [...]string{Decided: "", Loaded: "limits", GivenBack: "give_back", Settled: "settle", Lost: "lost"}
	resultWords = [...]string{Allowed: "allowed", Denied: "denied", Shadowed: "shadowed", Failed: "error"}
)

// AppendJSON appends the line as JSON, without a newline at its end. What is zero is
// left out, and what people would not see is escaped. Each byte of a text that is not
// UTF-8 becomes U+FFFD, and the line then says that it is lossy.
//
// A request waits for it: it takes 0.23 us and no allocation; encoding/json, which
// escapes and finds neither, takes twice as long, and copies the line.
func (l *Line) AppendJSON(dst []byte) []byte {
	w := writer{dst: dst, lossy: l.Lossy}
	w.dst = append(w.dst, `{"v":1`...)
	w.word(`,"kind":`, kindWords[l.Kind])
	w.dst = appendTime(append(w.dst, `,"time":"`...), l.At)
	w.dst = append(w.dst, '"')
	w.number(`,"seq":`, int64(l.Seq))
	w.text(`,"api":`, l.API)
	w.text(`,"limits":`, l.Limits)
	w.text(`,"domain":`, l.Domain)
	if l.ID != "" {
		w.text(`,"id":`, l.ID)
		w.text(`,"caller":`, l.Caller)
		w.number(`,"settle_within_us":`, l.SettleWithin.Microseconds())
	}
	if l.Kind.hasResult() {
		w.word(`,"result":`, l.Result.String())
	}
	w.text(`,"code":`, l.Code)
	w.flag(`,"degraded":true`, l.Degraded)
	w.text(`,"trace_id":`, l.TraceID)
	if len(l.Descriptors) > 0 {
		w.dst = append(w.dst, `,"descriptors":`...)
		for i := range l.Descriptors {
			w.separate(i)
			w.descriptor(l, &l.Descriptors[i])
		}
		w.dst = append(w.dst, ']')
	}
	if s := l.Settings; s != nil {
		w.dst = append(w.dst, `,"settings":`...)
		start := w.begin()
		w.flag(`,"shadow_mode":true`, s.ShadowMode)
		w.flag(`,"quota_mode":true`, s.QuotaMode)
		w.flag(`,"lenient":true`, s.Lenient)
		w.flag(`,"merge_domains":true`, s.MergeDomains)
		w.flag(`,"unmatched":"deny"`, s.DenyUnmatched)
		w.number(`,"max_clock_skew_us":`, s.MaxClockSkew.Microseconds())
		if s.Bounds != nil {
			w.bounds(s.Bounds)
		}
		w.end(start)
	}
	if len(l.Files) > 0 {
		w.dst = append(w.dst, `,"files":`...)
		for i := range l.Files {
			w.separate(i)
			w.file(&l.Files[i])
		}
		w.dst = append(w.dst, ']')
	}
	w.number(`,"lost":`, l.Lost)
	w.flag(`,"lossy":true`, w.lossy)
	return append(w.dst, '}')
}

// writer appends fields. Each but the first of an object begins with a comma.
type writer struct {
	dst   []byte
	lossy bool
}

// separate begins element i of a list.
func (w *writer) separate(i int) {
	if i == 0 {
		w.dst = append(w.dst, '[')
	} else {
		w.dst = append(w.dst, ',')
	}
}

// begin begins an object; end ends it. In between each field begins with a comma.
func (w *writer) begin() (start int) {
	start = len(w.dst)
	w.dst = append(w.dst, '{')
	return start
}

func (w *writer) end(start int) {
	if len(w.dst) > start+1 { // the comma of the first field
		w.dst = append(w.dst[:start+1], w.dst[start+2:]...)
	}
	w.dst = append(w.dst, '}')
}

func (w *writer) descriptor(l *Line, d *Descriptor) {
	w.dst = append(w.dst, '{')
	if len(d.Entries) > 0 {
		w.dst = append(w.dst, `"entries":`...)
		for i := range d.Entries {
			w.separate(i)
			w.entry(&d.Entries[i])
		}
		w.dst = append(w.dst, `],`...)
	}
	if d.Rule != "" {
		w.dst = append(w.dst, `"rule":`...)
		w.quote(d.Rule)
		w.dst = append(w.dst, ',')
	}
	if d.Plan != "" {
		w.dst = append(w.dst, `"plan":`...)
		w.quote(d.Plan)
		w.dst = append(w.dst, ',')
	}
	w.flag(`"unlimited":true,`, d.Unlimited)
	w.dst = strconv.AppendInt(append(w.dst, `"cost":`...), d.Cost, 10)
	w.flag(`,"reports":true`, d.Reports)
	w.flag(`,"kept":true`, d.Kept)
	w.flag(`,"doubtful":true`, d.Doubtful)
	w.word(`,"result":`, d.Result.String())
	w.text(`,"refusal":`, d.Refusal)
	if len(d.Limits) > 0 {
		w.dst = append(w.dst, `,"limits":`...)
		for i := range d.Limits {
			w.separate(i)
			w.limit(l, &d.Limits[i])
		}
		w.dst = append(w.dst, ']')
	}
	w.dst = append(w.dst, '}')
}

func (w *writer) entry(e *bucket.Entry) {
	w.dst = append(w.dst, '[')
	w.quote(e.Key)
	w.dst = append(w.dst, ',')
	w.quote(e.Value)
	w.dst = append(w.dst, ']')
}

func (w *writer) limit(l *Line, d *Limit) {
	start := w.begin()
	w.text(`,"name":`, d.Name)
	w.text(`,"result":`, d.Result)
	if d.At != 0 && d.At != l.At {
		w.number(`,"at":`, d.At)
	}
	if d.Seq != l.Seq {
		w.number(`,"seq":`, int64(d.Seq))
	}
	w.dst = strconv.AppendInt(append(w.dst, `,"remaining":`...), d.Remaining, 10)
	w.number(`,"retry_after_us":`, micros(d.RetryAfter))
	w.number(`,"reset_after_us":`, micros(d.ResetAfter))
	w.number(`,"paused_us":`, micros(d.Paused))
	w.flag(`,"degraded":true`, d.Degraded)
	w.flag(`,"remembered":true`, d.Remembered)
	w.flag(`,"retry_unknown":true`, d.RetryAfter == bucket.Unknown)
	w.word(`,"released":`, d.Released)
	w.flag(`,"renewed":true`, d.Renewed)
	if n := d.Numbers; n != nil {
		w.dst = append(w.dst, `,"numbers":`...)
		start := w.begin()
		w.text(`,"algorithm":`, n.Algorithm)
		w.number(`,"requests":`, n.Requests)
		w.number(`,"period_us":`, n.Period.Microseconds())
		w.number(`,"burst":`, n.Burst)
		w.number(`,"block_for_us":`, n.BlockFor.Microseconds())
		if n.Calendar != "" {
			w.text(`,"calendar":`, n.Calendar)
			w.text(`,"starts":`, n.Starts)
			w.text(`,"time_zone":`, n.TimeZone)
		}
		w.flag(`,"assigned":true`, n.Assigned)
		w.flag(`,"apart":true`, n.Apart)
		w.end(start)
	}
	w.number(`,"taken_at":`, d.TakenAt)
	w.number(`,"returned":`, d.Returned)
	w.number(`,"added":`, d.Added)
	w.number(`,"takes":`, d.Takes)
	w.end(start)
}

// micros returns a span in microseconds, -1 for never, and 0 for one that is unknown.
func micros(d time.Duration) int64 {
	if d == bucket.Never {
		return -1
	}
	return max(0, d.Microseconds())
}

func (w *writer) bounds(b *Bounds) {
	w.dst = append(w.dst, `,"bounds":`...)
	start := w.begin()
	w.number(`,"per_subject":`, b.PerSubject)
	w.number(`,"bytes_per_second":`, b.BytesPerSecond)
	w.share(`,"sample_allowed":`, b.SampleAllowed)
	w.share(`,"sample_denied":`, b.SampleDenied)
	w.end(start)
}

func (w *writer) file(f *File) {
	start := w.begin()
	w.text(`,"name":`, f.Name)
	w.text(`,"text":`, f.Text)
	w.end(start)
}

// flag appends a field that is true, or nothing.
func (w *writer) flag(field string, set bool) {
	if set {
		w.dst = append(w.dst, field...)
	}
}

func (w *writer) number(field string, n int64) {
	if n != 0 {
		w.dst = strconv.AppendInt(append(w.dst, field...), n, 10)
	}
}

func (w *writer) share(field string, share float64) {
	if share != 0 {
		w.dst = strconv.AppendFloat(append(w.dst, field...), share, 'g', -1, 64)
	}
}

// word appends a field whose text needs no escapes.
func (w *writer) word(field, word string) {
	if word != "" {
		w.dst = append(append(append(append(w.dst, field...), '"'), word...), '"')
	}
}

func (w *writer) text(field, text string) {
	if text != "" {
		w.dst = append(w.dst, field...)
		w.quote(text)
	}
}

// plain has the bytes that stand for themselves in a JSON string.
var plain = func() (is [256]bool) {
	for c := ' '; c < 0x7F; c++ {
		is[c] = c != '"' && c != '\\'
	}
	return is
}()

// quote appends a text.
func (w *writer) quote(s string) {
	w.dst = append(w.dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if plain[c] {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			switch {
			case r == utf8.RuneError && size == 1:
				w.lossy = true
				w.dst = append(append(w.dst, s[start:i]...), "\uFFFD"...)
			case spelling.IsHidden(r):
				w.dst = spelling.AppendJSONEscape(append(w.dst, s[start:i]...), r)
			default:
				i += size
				continue
			}
			i += size
		} else {
			w.dst = appendEscaped(append(w.dst, s[start:i]...), c)
			i++
		}
		start = i
	}
	w.dst = append(append(w.dst, s[start:]...), '"')
}

// appendEscaped appends a quote, a backslash or a control character.
func appendEscaped(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	return hex.AppendEncode(append(dst, `\u00`...), []byte{c})
}

// The first and the last moment that appendTime can write.
var (
	firstTime = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	lastTime  = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro() - 1
)

// appendTime appends a moment, in microseconds since the Unix epoch, as the 27 characters
// 2026-11-23T00:00:00.000001Z. The years are 0 to 9999; moments beyond become the first
// or last one of these.
func appendTime(dst []byte, at int64) []byte {
	t := time.UnixMicro(min(max(at, firstTime), lastTime)).UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	dst = append(appendDigits(dst, year, 4), '-')
	dst = append(appendDigits(dst, int(month), 2), '-')
	dst = append(appendDigits(dst, day, 2), 'T')
	dst = append(appendDigits(dst, hour, 2), ':')
	dst = append(appendDigits(dst, minute, 2), ':')
	dst = append(appendDigits(dst, second, 2), '.')
	return append(appendDigits(dst, t.Nanosecond()/1000, 6), 'Z')
}

// appendDigits appends the last n digits of a number of at least 0.
func appendDigits(dst []byte, number, n int) []byte {
	dst = append(dst, "000000"[:n]...)
	for i := len(dst) - 1; n > 0; i, n = i-1, n-1 {
		dst[i] = byte('0' + number%10)
		number /= 10
	}
	return dst
}
