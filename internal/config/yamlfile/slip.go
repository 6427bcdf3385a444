package yamlfile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// slip is a common mistake in YAML's syntax. The parser seldom names it, or the
// line where it stands.
type slip struct {
	line, at       int // both from 0; at is in bytes of the line
	found, allowed string
}

// findSlips leads from the words of the parser to the functions that find the
// mistake behind them. Each function looks at the line where the parser fails and
// at those before it. None shows the text that stands there: it may be a password.
var findSlips = []struct {
	said *regexp.Regexp
	find []func(lines []string, n int) *slip
}{
	{regexp.MustCompile(`cannot start any token|alphabetic|unknown anchor|comment or line break|node content|mapping keys`),
		[]func([]string, int) *slip{indicatorSlip, closerSlip}},
	{regexp.MustCompile(`escape character`), []func([]string, int) *slip{escapeSlip}},
	{regexp.MustCompile(`expected ':'`), []func([]string, int) *slip{blankSlip}},
	{regexp.MustCompile(`mapping values`), []func([]string, int) *slip{blankSlip, colonSlip, indentSlip}},
	{regexp.MustCompile(`end of stream`), []func([]string, int) *slip{quoteSlip}},
	{regexp.MustCompile(`',' or`), []func([]string, int) *slip{afterQuoteSlip, quoteSlip, colonSlip, closerSlip, openerSlip, commaSlip}},
	{regexp.MustCompile(`expected (key|'-')`), []func([]string, int) *slip{afterQuoteSlip, closerSlip, quoteSlip, indentSlip}},
}

// findSlip returns the mistake behind an error at a line, or nil.
func findSlip(lines []string, n int, said string) *slip {
	if tab := tabSlip(lines, n); tab != nil {
		return tab // whatever the parser says
	}
	for _, s := range findSlips {
		if !s.said.MatchString(said) {
			continue
		}
		for _, find := range s.find {
			if found := find(lines, n); found != nil {
				return found
			}
		}
	}
	return nil
}

// column counts characters from 1.
func (s *slip) column(lines []string) int { return utf8.RuneCountInString(lines[s.line][:s.at]) + 1 }

// yamlScalar is a scalar in a line, or as much of it as stands there.
type yamlScalar struct {
	from, to int
	// quote is 0 for a plain one; closed is whether the quote ends in the line.
	quote  byte
	closed bool
	// inFlow is whether it stands within brackets or braces of the line.
	inFlow bool
}

// yamlLine is how a line reads if nothing is open before it.
type yamlLine struct {
	scalars []yamlScalar
	// open are the places of brackets and braces that are not closed; stray is
	// that of the first one which closes nothing, or -1.
	open  []int
	stray int
}

func isYAMLBlank(line string, i int) bool { return i >= len(line) || line[i] == ' ' || line[i] == '\t' }

func scanYAMLLine(line string) yamlLine {
	l := yamlLine{stray: -1}
	for i := 0; i < len(line); {
		c, inFlow := line[i], len(l.open) > 0
		switch {
		case c == ' ', c == '\t', inFlow && c == ',', c == '-' && !inFlow && isYAMLBlank(line, i+1), c == ':' && (inFlow || isYAMLBlank(line, i+1)):
			i++
		case c == '#' && (i == 0 || isYAMLBlank(line, i-1)):
			return l
		case c == '{' || c == '[':
			l.open = append(l.open, i)
			i++
		case c == '}' || c == ']':
			if inFlow && line[l.open[len(l.open)-1]] == c-2 { // as in ASCII
				l.open = l.open[:len(l.open)-1]
			} else if l.stray < 0 {
				l.stray = i
			}
			i++
		default:
			s := yamlScalar{from: i, inFlow: inFlow}
			if c == '"' || c == '\'' {
				s.quote = c
				s.to, s.closed = quotedEnd(line, i)
			} else {
				s.to = plainEnd(line, i, inFlow)
			}
			l.scalars = append(l.scalars, s)
			i = s.to
		}
	}
	return l
}

// quotedEnd returns the end of the text that is quoted from i on.
func quotedEnd(line string, i int) (end int, closed bool) {
	quote := line[i]
	for i++; i < len(line); i++ {
		switch {
		case line[i] == '\\' && quote == '"':
			i++
		case line[i] == quote && quote == '\'' && strings.HasPrefix(line[i+1:], "'"):
			i++
		case line[i] == quote:
			return i + 1, true
		}
	}
	return len(line), false
}

// plainEnd returns the end of the plain scalar that begins at i.
func plainEnd(line string, i int, inFlow bool) int {
	for i++; i < len(line); i++ {
		switch c := line[i]; {
		case c == ':' && (isYAMLBlank(line, i+1) || inFlow && strings.IndexByte(",]}", line[i+1]) >= 0),
			c == '#' && isYAMLBlank(line, i-1),
			inFlow && strings.IndexByte(",[]{}", c) >= 0:
			return i
		}
	}
	return len(line)
}

// tabSlip finds a tab in the indentation.
func tabSlip(lines []string, n int) *slip {
	line := lines[n]
	rest := strings.TrimLeft(line, " \t-")
	if i := strings.IndexByte(line[:len(line)-len(rest)], '\t'); i >= 0 {
		return &slip{n, i, "a tab in the indentation", "blanks; YAML takes no tab there"}
	}
	return nil
}

// indicatorSlip finds a plain scalar that begins with a character which means
// something to YAML.
func indicatorSlip(lines []string, n int) *slip {
	for _, s := range scanYAMLLine(lines[n]).scalars {
		if s.quote != 0 {
			continue
		}
		if c := lines[n][s.from]; strings.IndexByte("@%`*&|>,?", c) >= 0 {
			found := "a text that begins with " + string(c)
			if c == '*' {
				found += ", which makes it an alias, without its anchor"
			}
			return &slip{n, s.from, found, `quotes around it, such as "` + string(c) + `..."`}
		}
	}
	return nil
}

// escapeSlip finds a backslash that begins no escape.
func escapeSlip(lines []string, n int) *slip {
	for _, s := range scanYAMLLine(lines[n]).scalars {
		if s.quote != '"' {
			continue
		}
		for i := s.from; i+1 < s.to; i++ {
			if lines[n][i] != '\\' {
				continue
			}
			if i++; strings.IndexByte("0abt\tnvfre \"/\\N_LPxuU", lines[n][i]) < 0 {
				return &slip{n, i - 1, "a backslash that begins no escape", `\\ for a backslash, or single quotes around the text`}
			}
		}
	}
	return nil
}

// keyWithoutBlank matches a key of settings or limits that is followed by more
// without a blank.
var keyWithoutBlank = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*:[^ \t/]`)

// blankSlip finds a key without a blank after its colon: to YAML that is a text,
// which goes on in the next line, up to a colon there.
func blankSlip(lines []string, n int) *slip {
	var first *slip
	i := n
	if colonWithoutBlank(lines[n]) < 0 {
		i = lineBefore(lines, n)
	}
	for ; i >= 0; i = lineBefore(lines, i) {
		at := colonWithoutBlank(lines[i])
		if at < 0 {
			break
		}
		first = &slip{i, at, "a colon without a blank after it", "KEY: VALUE, or quotes around a text"}
	}
	return first
}

// colonWithoutBlank returns where the colon stands in a line that holds nothing
// but such a key, or -1.
func colonWithoutBlank(line string) int {
	scalars := scanYAMLLine(line).scalars
	if len(scalars) != 1 || scalars[0].quote != 0 || scalars[0].inFlow || !keyWithoutBlank.MatchString(line[scalars[0].from:]) {
		return -1
	}
	return scalars[0].from + strings.IndexByte(line[scalars[0].from:], ':')
}

// lineBefore returns the last line before n that is neither empty nor a comment,
// or -1.
func lineBefore(lines []string, n int) int {
	for n--; n >= 0; n-- {
		if !IsBlank([]byte(strings.TrimLeft(lines[n], " \t"))) {
			break
		}
	}
	return n
}

// colonSlip finds a value that is followed by a colon, as a key is.
func colonSlip(lines []string, n int) *slip {
	scalars := scanYAMLLine(lines[n]).scalars
	for i := 0; i+2 < len(scalars); i++ {
		key, value, next := scalars[i], scalars[i+1], scalars[i+2]
		if isColon(lines[n][key.to:value.from]) && isColon(lines[n][value.to:next.from]) {
			return &slip{n, value.to + strings.IndexByte(lines[n][value.to:], ':'), "a second colon", "quotes around a text that has a colon and a blank; in braces, a comma between two entries"}
		}
	}
	return nil
}

func isColon(between string) bool { return strings.Trim(between, " \t") == ":" }

// indentSlip finds a line that is indented like none of those above to which it
// could belong.
func indentSlip(lines []string, n int) *slip {
	indent := len(lines[n]) - len(strings.TrimLeft(lines[n], " "))
	var above []int
	for i := lineBefore(lines, n); i >= 0; i = lineBefore(lines, i) {
		for _, column := range slices.Backward(contentColumns(lines[i])) {
			if len(above) == 0 || column < above[0] {
				above = slices.Insert(above, 0, column)
			}
		}
	}
	if len(above) == 0 || slices.Contains(above, indent) {
		return nil
	}
	return &slip{n, indent, fmt.Sprintf("a line that is indented by %s", Plural(int64(indent), "blank")),
		"as many blanks as one above that it belongs to: " + strings.Trim(fmt.Sprint(above), "[]")}
}

// contentColumns are those in which the items and keys of a line begin.
func contentColumns(line string) []int {
	var columns []int
	for i := 0; i < len(line); i++ {
		switch {
		case line[i] == ' ':
		case line[i] == '-' && isYAMLBlank(line, i+1):
			columns = append(columns, i)
		default:
			return append(columns, i)
		}
	}
	return columns
}

// quoteSlip finds the quote that nothing closes in its line, nor in those
// between it and the line where the parser fails.
func quoteSlip(lines []string, n int) *slip {
	for i := n; i >= 0; i-- {
		for _, s := range scanYAMLLine(lines[i]).scalars {
			if s.quote == 0 || s.closed {
				continue
			}
			for _, between := range lines[min(i+1, n):n] {
				if strings.IndexByte(between, s.quote) >= 0 {
					return nil
				}
			}
			return &slip{i, s.from, "a " + string(s.quote) + " that begins a text and none that ends it", "a text between two of them"}
		}
	}
	return nil
}

// afterQuoteSlip finds text directly after the quote that ends another.
func afterQuoteSlip(lines []string, n int) *slip {
	for _, s := range scanYAMLLine(lines[n]).scalars {
		if s.closed && !isYAMLBlank(lines[n], s.to) && strings.IndexByte(",:]}", lines[n][s.to]) < 0 {
			return &slip{n, s.to, "more after the quote that ends a text", `nothing; a quote within a text is \" between double quotes and '' between single ones`}
		}
	}
	return nil
}

// closerSlip finds a bracket or brace that closes nothing.
func closerSlip(lines []string, n int) *slip {
	if i := scanYAMLLine(lines[n]).stray; i >= 0 {
		return &slip{n, i, "a " + lines[n][i:i+1] + " that closes nothing", "one for each that opens, or quotes around a text"}
	}
	return nil
}

// openerSlip finds a bracket or brace that is not closed in its line.
func openerSlip(lines []string, n int) *slip {
	l := scanYAMLLine(lines[n])
	if len(l.open) == 0 {
		return nil
	}
	i := l.open[len(l.open)-1]
	return &slip{n, i, "a " + lines[n][i:i+1] + " that is not closed, or two entries in it without a comma between them", "one that closes for each that opens, and commas"}
}

// commaSlip finds the end of a line after which a comma is missing.
func commaSlip(lines []string, n int) *slip {
	end := strings.TrimRight(lines[n], " \t")
	if end == "" || strings.IndexByte(",{[:", end[len(end)-1]) >= 0 {
		return nil
	}
	return &slip{n, len(end), "an entry without a comma after it", "a comma between two entries"}
}

// IsBlank reports whether a line without its indentation is empty or a comment.
func IsBlank(rest []byte) bool { return len(rest) == 0 || rest[0] == '#' }
