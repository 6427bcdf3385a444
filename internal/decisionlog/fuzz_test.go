package decisionlog_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
)

// FuzzWrittenLinesAreRead holds the reader to the writer.
func FuzzWrittenLinesAreRead(f *testing.F) {
	f.Add([]byte("api\x00limits\x00a\"b\\\n\u2028"), int64(1763856000000001), uint32(7), int64(0x0102030201000000))
	f.Add([]byte("\x00\x00x"), int64(0), uint32(0), int64(0x7f7f7f7f7f7f7f7f))
	f.Fuzz(func(t *testing.T, text []byte, at int64, seq uint32, n int64) {
		l := lineOf(text, at, seq, n)
		var got decisionlog.Line
		line := l.AppendJSON(nil)
		if err := got.ReadJSON(line); err != nil {
			t.Skip() // such as a time of the year 10,000, or a result that is no word
		}
		if second := got.AppendJSON(nil); string(second) != string(line) {
			t.Errorf("%s\nis read and written as\n%s", line, second)
		}
		if !json.Valid(line) || !utf8.Valid(line) || strings.Contains(string(line), "\n") {
			t.Errorf("%q", line)
		}
	})
}
