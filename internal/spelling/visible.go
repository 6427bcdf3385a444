package spelling

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// In a text for people \u{202e} is the character U+202E, and \x{ff} a byte that is not
// UTF-8. These stand for what people would not see, or what a terminal would obey.

// IsHidden reports whether people would not see a character, or see it as another: a
// control or format character, a blank other than that of ASCII, what Unicode has not
// assigned, and what fonts leave empty.
func IsHidden(r rune) bool {
	return !strconv.IsPrint(r) || r >= firstEmpty && unicode.IsOneOf(empty, r)
}

// empty are characters that count as letters, marks and symbols, and show nothing.
var empty = []*unicode.RangeTable{
	unicode.Other_Default_Ignorable_Code_Point, // such as the fillers of Hangul
	unicode.Variation_Selector,
	{
		R16: []unicode.Range16{{Lo: blankBraille, Hi: blankBraille, Stride: 1}},
		R32: []unicode.Range32{
			{Lo: 0x13441, Hi: 0x13442, Stride: 1}, // blanks of hieroglyphs
			{Lo: 0x16FE4, Hi: 0x16FE4, Stride: 1}, // the filler of Khitan
			{Lo: 0x1D159, Hi: 0x1D159, Stride: 1}, // the null notehead
		},
	},
}

const (
	firstEmpty   = 0x034F
	blankBraille = 0x2800
)

// hiddenAt decodes the first character of a text, or its first byte that is not UTF-8,
// and reports whether it is hidden.
func hiddenAt(text string) (r rune, size int, isHidden bool) {
	if c := text[0]; c < utf8.RuneSelf {
		return rune(c), 1, c < ' ' || c == 0x7F
	}
	r, size = utf8.DecodeRuneInString(text)
	return r, size, isInvalid(r, size) || IsHidden(r)
}

func isInvalid(r rune, size int) bool { return r == utf8.RuneError && size == 1 }

// indexHidden returns where the first hidden character of a text is, or -1.
func indexHidden(text string) int {
	for i := 0; i < len(text); {
		_, size, isHidden := hiddenAt(text[i:])
		if isHidden {
			return i
		}
		i += size
	}
	return -1
}

// Visible returns a text with its hidden characters escaped. What is already escaped in
// it stays so.
func Visible(text string) string {
	if indexHidden(text) < 0 {
		return text
	}
	return string(AppendVisible(nil, text))
}

// AppendVisible appends what Visible returns.
func AppendVisible(dst []byte, text string) []byte {
	for text != "" {
		r, size, isHidden := hiddenAt(text)
		if isHidden {
			dst = appendEscape(dst, text[0], r, size)
		} else {
			dst = append(dst, text[:size]...)
		}
		text = text[size:]
	}
	return dst
}

// VisibleLines is Visible for a text of several lines.
func VisibleLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Visible(line)
	}
	return strings.Join(lines, "\n")
}

// Escape is Visible, but also escapes each backslash that Unescape would take for the
// beginning of an escape: no two texts look alike.
func Escape(text string) string {
	if indexHidden(text) < 0 && !strings.Contains(text, `\`) {
		return text
	}
	var dst []byte
	for text != "" {
		r, size, isHidden := hiddenAt(text)
		if _, _, isEscape := readEscape(text); isHidden || isEscape {
			dst = appendEscape(dst, text[0], r, size)
		} else {
			dst = append(dst, text[:size]...)
		}
		text = text[size:]
	}
	return string(dst)
}

// Unescape reads what Escape wrote. A backslash that begins no escape stays a backslash.
func Unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var s strings.Builder
	for text != "" {
		means, size, isEscape := readEscape(text)
		if !isEscape {
			means, size = text[:1], 1
		}
		s.WriteString(means)
		text = text[size:]
	}
	return s.String()
}

// appendEscape appends the escape of a character, or of a byte that is not UTF-8.
func appendEscape(dst []byte, first byte, r rune, size int) []byte {
	if isInvalid(r, size) {
		return fmt.Appendf(dst, `\x{%02x}`, first)
	}
	return fmt.Appendf(dst, `\u{%x}`, r)
}

// readEscape reads the escape that a text begins with: what it means, and its size.
func readEscape(text string) (means string, size int, isEscape bool) {
	const longest = len(`\u{10ffff}`)
	if len(text) < len(`\u{0}`) || text[0] != '\\' || text[2] != '{' {
		return "", 0, false
	}
	end := strings.IndexByte(text[:min(len(text), longest)], '}')
	if end < 0 {
		return "", 0, false
	}
	code, err := strconv.ParseUint(text[len(`\u{`):end], 16, 32)
	switch {
	case err != nil:
		return "", 0, false
	case text[1] == 'u' && utf8.ValidRune(rune(code)):
		return string(rune(code)), end + 1, true
	case text[1] == 'x' && end == len(`\x{ff`):
		return string([]byte{byte(code)}), end + 1, true
	}
	return "", 0, false
}

// AppendJSON appends JSON with the hidden characters of its strings as \u escapes:
// readers find the same in it.
func AppendJSON(dst, json []byte) []byte {
	dst = slices.Grow(dst, len(json))
	for i := 0; i < len(json); {
		if c := json[i]; c < 0x7F { // controls are blanks between texts
			dst = append(dst, c)
			i++
			continue
		}
		r, size := utf8.DecodeRune(json[i:])
		switch {
		case isInvalid(r, size):
			dst = append(dst, "\uFFFD"...) // as readers take it
		case IsHidden(r):
			dst = AppendJSONEscape(dst, r)
		default:
			dst = append(dst, json[i:i+size]...)
		}
		i += size
	}
	return dst
}

// AppendJSONEscape appends a character as a \u escape of JSON, or two.
func AppendJSONEscape(dst []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		return fmt.Appendf(dst, `\u%04x\u%04x`, high, low)
	}
	return fmt.Appendf(dst, `\u%04x`, r)
}
