package trace

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// distance says how far a text is from another that may have been meant: 0 if they are
// almost the same, otherwise the more, the less of their beginnings and ends is equal.
func distance(asked, filed string) int {
	if Almost(asked, filed) != "" {
		return 0
	}
	const far = 1000
	common, shorter := 0, min(len(asked), len(filed))
	for common < shorter && asked[common] == filed[common] {
		common++
	}
	ends := 0
	for ends < shorter-common && asked[len(asked)-1-ends] == filed[len(filed)-1-ends] {
		ends++
	}
	return far - min(common+ends, far-1)
}

// Almost says how two different texts that people take for equal differ, or "". It is
// cheap, since a value may be compared with every value of a file.
func Almost(asked, filed string) string {
	const maxAround, maxLength = 16, 512
	if more := len(asked) - len(filed); more > maxAround || -more > maxAround || len(asked) > maxLength {
		return ""
	}
	a, b := trimmed(asked), trimmed(filed)
	switch {
	case asked == filed:
		return ""
	case a != b && strings.EqualFold(asked, filed):
		return "in case alone"
	case a != b && strings.EqualFold(a, b):
		return "in case and in what stands around it"
	case a != b && isOneLetterOff(asked, filed):
		return byOneLetter
	case a != b || a == "":
		return ""
	case strings.TrimSpace(asked) == strings.TrimSpace(filed):
		return "in white space around it"
	case strings.TrimRight(asked, "/") == strings.TrimRight(filed, "/"):
		return "by a slash at the end"
	case strings.Trim(asked, quotes) == strings.Trim(filed, quotes):
		return "by quotes around it"
	}
	return "in what stands around it"
}

const (
	quotes      = "\"'`"
	byOneLetter = "by one letter"
)

// trimmed returns a text without the white space, slashes and quotes around it.
func trimmed(s string) string { return strings.Trim(s, " \t\r\n/"+quotes) }

// isOneLetterOff reports whether replacing, inserting or removing one letter, or swapping
// two, turns a into b. Short texts, and those that differ in a digit, count as different
// names.
func isOneLetterOff(a, b string) bool {
	const minLength, maxLength = 4, 256
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(a) < minLength || len(b) > maxLength || len(b)-len(a) > utf8.UTFMax {
		return false
	}
	for len(a) > 0 && len(b) > 0 {
		x, n := utf8.DecodeRuneInString(a)
		y, m := utf8.DecodeRuneInString(b)
		if x != y {
			break
		}
		a, b = a[n:], b[m:]
	}
	x, n := utf8.DecodeRuneInString(a)
	y, m := utf8.DecodeRuneInString(b)
	switch {
	case b == "":
		return false // they are equal
	case a == b[m:]:
		return unicode.IsLetter(y)
	case a == "":
		return false
	case a[n:] == b[m:]:
		return unicode.IsLetter(x) && unicode.IsLetter(y)
	}
	nextOfA, i := utf8.DecodeRuneInString(a[n:])
	nextOfB, j := utf8.DecodeRuneInString(b[m:])
	return x == nextOfB && y == nextOfA && a[n+i:] == b[m+j:] && unicode.IsLetter(x) && unicode.IsLetter(y)
}
