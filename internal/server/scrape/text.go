package scrape

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/server/pages"
)

// text is Prometheus' text format, or OpenMetrics, which differs in how it heads a
// counter and spells whole numbers.
type text struct{ openMetrics bool }

func (t text) begin(out *pages.Writer, f *Family) {
	name, kind := f.Name, "counter"
	if t.openMetrics {
		// In OpenMetrics a counter is one by its name.
		var ok bool
		if name, ok = strings.CutSuffix(name, "_total"); !ok {
			kind = "unknown"
		}
	}
	b := append(out.Bytes, "# HELP "...)
	b = append(b, name...)
	b = append(b, ' ')
	b = appendEscaped(b, f.Help, t.openMetrics)
	b = append(b, "\n# TYPE "...)
	b = append(b, name...)
	b = append(b, ' ')
	b = append(b, kind...)
	out.Bytes = append(b, '\n')
}

func (t text) series(out *pages.Writer, f *Family, values [][]byte, n uint64) {
	b := append(out.Bytes, f.Name...)
	open := byte('{')
	for i, label := range f.Labels {
		if !f.isShown(i, values) {
			continue
		}
		b = append(b, open)
		open = ','
		b = append(b, label...)
		b = append(b, `="`...)
		b = appendEscaped(b, values[i], true)
		b = append(b, '"')
	}
	if open == ',' {
		b = append(b, '}')
	}
	b = append(b, ' ')
	begin := len(b)
	// Values are floats, as Prometheus holds them.
	b = strconv.AppendFloat(b, float64(n), 'g', -1, 64)
	if t.openMetrics && !bytes.ContainsRune(b[begin:], 'e') {
		b = append(b, ".0"...)
	}
	out.Bytes = append(b, '\n')
}

func (text) end(*pages.Writer, *Family) {}

// appendEscaped appends text with backslashes before what ends it or a line.
func appendEscaped[T string | []byte](dst []byte, text T, quotes bool) []byte {
	plain := 0 // where what is not yet appended begins
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\n':
			c = 'n'
		case c == '\\' || quotes && c == '"':
		default:
			continue
		}
		dst = append(dst, text[plain:i]...)
		dst = append(dst, '\\', c)
		plain = i + 1
	}
	return append(dst, text[plain:]...)
}
