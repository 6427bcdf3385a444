package yamlfile

import (
	"bytes"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// yamlErrorText matches the errors of the parser.
var yamlErrorText = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// slips map the parser's words, which seldom name a mistake, to what is allowed where
// people usually made it.
var slips = []struct{ said, allowed string }{
	{"cannot start any token", "quotes around a text that begins with @, % or `"},
	{"alphabetic", "quotes around a text that begins with *, & or %"},
	{"unknown anchor", "quotes around a text that begins with *"},
	{"comment or line break", "quotes around a text that begins with | or >"},
	{"mapping keys", "quotes around a text that begins with ?"},
	{"node content", "a value; quotes around a text that begins with a comma or a bracket"},
	{"escape character", `\\ for a backslash, or single quotes around the text`},
	{"expected ':'", "KEY: VALUE, with a blank after the colon, here and above"},
	{"mapping values", "KEY: VALUE, with a blank after the colon, here and above, and as many blanks in front as the keys beside it have; quotes around a text that has a colon and a blank"},
	{"end of stream", "a quote that ends the text for each that begins one"},
	{"',' or", "a comma between two entries, and a bracket that closes for each that opens"},
	{"expected key", "as many blanks in front as the keys beside it have; quotes around all of a text, and none that stays open above"},
	{"expected '-'", "as many blanks in front as the items beside it have; quotes around all of a text, and none that stays open above"},
}

// SyntaxError says where the parser failed. The line that the parser names is often that
// of an earlier token, or missing, and it knows no column. So SyntaxError searches for the
// first line up to which the text fails with the same error, and in it for the first
// character. It does not show the text at that place, since it may be a password.
func SyntaxError(data []byte, err error) *Error {
	const largest = 1 << 20 // in a larger file each try takes too long
	parts := yamlErrorText.FindStringSubmatch(err.Error())
	if parts == nil {
		return &Error{Line: 1, Column: 1, Found: "no YAML: " + err.Error()}
	}
	said := parts[2]
	fails := func(end int) bool {
		_, _, e := DecodeYAML(data[:end])
		return e != nil && strings.HasSuffix(e.Error(), said)
	}
	n, _ := strconv.Atoi(parts[1])
	lines := bytes.SplitAfter(data, []byte("\n"))
	ends := make([]int, len(lines))
	for i, end := 0, 0; i < len(lines); i++ {
		end += len(lines[i])
		ends[i] = end
	}
	if len(data) <= largest {
		n = 1 + sort.Search(len(lines), func(i int) bool { return fails(ends[i]) })
	}
	n = min(max(n, 1), len(lines))
	line := lines[n-1]
	if indent := line[:len(line)-len(bytes.TrimLeft(line, " \t-"))]; bytes.IndexByte(indent, '\t') >= 0 {
		return &Error{Line: n, Column: bytes.IndexByte(indent, '\t') + 1, Found: "a tab in the indentation", Allowed: "blanks; YAML takes no tab there"}
	}
	at := len(line) - len(bytes.TrimLeft(line, " "))
	if len(data) <= largest {
		start := ends[n-1] - len(line)
		at += sort.Search(len(line)-at, func(i int) bool { return fails(start + at + i + 1) })
	}
	e := &Error{Line: n, Column: utf8.RuneCount(line[:at]) + 1, Found: "no YAML: " + said}
	if strings.HasPrefix(said, "unknown anchor") {
		e.Found = "no YAML: an alias without its anchor" // the name may be a password
	}
	for _, s := range slips {
		if strings.Contains(said, s.said) {
			e.Allowed = s.allowed
			break
		}
	}
	return e
}
