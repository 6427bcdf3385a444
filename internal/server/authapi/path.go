package authapi

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"
)

// pathSteps are the changes that servers make to a path before they look for its
// handler. Each server makes some of them, in an order of its own, and some make
// one twice. A step that has nothing to do returns the path as it is.
var pathSteps = [...]func(path string) string{
	// nginx, Apache, IIS and most frameworks. Twice: two servers in a chain, if the
	// first passes on the decoded path.
	decoded,
	// nginx (merge_slashes), Apache (MergeSlashes), Tomcat, Go's ServeMux, Rails
	// and Werkzeug; not Express, Jetty or servers that follow the WHATWG's URL.
	withoutEmptySegments,
	// All except bare Node.js, and FastCGI behind a server that does not normalise.
	withoutDotSegments,
	// Tomcat, Jetty, Undertow and Spring, which do so before they follow dots.
	withoutParameters,
	// IIS, servers that follow the WHATWG's URL, and Windows' file systems.
	asOnWindows,
	// PHP's parse_url, which takes the text after // for a host, and servers that
	// accept a whole URL, or a path without its first slash.
	withoutHost,
}

const (
	// maxReadings and maxReadingsBytes bound the readings of one path. An honest
	// path has a few.
	maxReadings      = 64
	maxReadingsBytes = 64 << 10
	// maxPathValues bounds how many prefixes one path may have, none included.
	maxPathValues = 8
)

// readingsOf returns all ways in which servers may understand a path. It
// reports false if there are too many.
func readingsOf(path string) (readings []string, ok bool) {
	readings = []string{withPlainEscapes(path)}
	size := len(path)
	for i := 0; i < len(readings); i++ {
		for _, step := range pathSteps {
			r := step(readings[i])
			if slices.Contains(readings, r) {
				continue
			}
			size += len(r)
			if len(readings) == maxReadings || size > maxReadingsBytes {
				return nil, false
			}
			readings = append(readings, r)
		}
	}
	return readings, true
}

// withPlainEscapes decodes the escapes of characters that mean the same without
// one: all except separators, and % itself.
func withPlainEscapes(path string) string { return unescapeBut(path, `/\;?#%`) }

// prefixesOf returns the prefixes under which servers may find a path: the longest
// one of each reading, with the case of letters and without; "" for a reading that
// has none. Prefixes come longest first. It reports false if there are too many
// readings.
func prefixesOf(path string, prefixes []string) (found []string, ok bool) {
	readings, ok := readingsOf(path)
	if !ok {
		return nil, false
	}
	for _, r := range readings {
		for _, p := range [...]string{prefixOf(r, prefixes, false), prefixOf(r, prefixes, true)} {
			if !slices.Contains(found, p) {
				found = append(found, p)
			}
		}
	}
	return found, len(found) <= maxPathValues
}

// prefixOf returns the longest prefix of a path, or "". With anyCase, letters that
// differ in case are equal, and of equal prefixes it prefers the one that the path
// has as it is.
func prefixOf(path string, prefixes []string, anyCase bool) string {
	best := ""
	for _, p := range prefixes {
		if len(p) < len(best) {
			break
		}
		if len(p) > len(path) || p != "/" && !endsSegment(path[len(p):]) {
			continue
		}
		switch begin := path[:len(p)]; {
		case begin == p:
			return p
		case anyCase && best == "" && strings.EqualFold(begin, p):
			best = p
		}
	}
	return best
}

// endsSegment reports whether the text after a prefix may end its last segment: for
// servers in Java a ; does, for servers in C a NUL, and for those that look for a
// query in the decoded path a ?.
func endsSegment(rest string) bool {
	return rest == "" || rest[0] < ' ' || strings.IndexByte("/;?#\x7f", rest[0]) >= 0
}

func withoutHost(path string) string {
	rest, ok := strings.CutPrefix(path, "//")
	switch {
	case path == "":
		return ""
	case ok:
	case path[0] == '/':
		return path
	default:
		if _, rest, ok = strings.Cut(path, "://"); !ok {
			return "/" + path
		}
	}
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[i:]
	}
	return "/"
}

func withoutEmptySegments(path string) string {
	if !strings.Contains(path, "//") {
		return path
	}
	plain := make([]byte, 0, len(path))
	for i := range len(path) {
		if path[i] != '/' || i == 0 || path[i-1] != '/' {
			plain = append(plain, path[i])
		}
	}
	return string(plain)
}

// withoutDotSegments removes the segments . and .., escaped or not.
func withoutDotSegments(path string) string {
	if !strings.Contains(path, "/.") && !strings.Contains(path, "/%2") {
		return path
	}
	first, rest, _ := strings.Cut(path, "/")
	plain := append(make([]byte, 0, len(path)+1), first...)
	dots := 0
	for s := range strings.SplitSeq(rest, "/") {
		if dots = countDots(s); dots == 2 {
			plain = plain[:max(bytes.LastIndexByte(plain, '/'), len(first))]
		} else if dots == 0 {
			plain = append(append(plain, '/'), s...)
		}
	}
	if dots > 0 {
		plain = append(plain, '/')
	}
	return string(plain)
}

// countDots returns 1 for the segment . and 2 for .., escaped or not, and 0 for any
// other.
func countDots(segment string) int {
	dots := 0
	for rest := segment; rest != ""; dots++ {
		switch {
		case rest[0] == '.':
			rest = rest[1:]
		case len(rest) >= 3 && strings.EqualFold(rest[:3], "%2e"):
			rest = rest[3:]
		default:
			return 0
		}
	}
	if dots > 2 {
		return 0
	}
	return dots
}

// withoutParameters cuts each segment at its first semicolon.
func withoutParameters(path string) string {
	if !strings.Contains(path, ";") {
		return path
	}
	return eachSegment(path, func(s string) string {
		s, _, _ = strings.Cut(s, ";")
		return s
	})
}

// asOnWindows turns backslashes into slashes, and removes dots and spaces from the
// end of each segment.
func asOnWindows(path string) string {
	plain := strings.ReplaceAll(path, `\`, "/")
	if !strings.ContainsAny(plain, ". ") {
		return plain
	}
	return eachSegment(plain, func(s string) string {
		if s = strings.TrimRight(s, " "); s == "." || s == ".." {
			return s
		}
		return strings.TrimRight(s, ". ")
	})
}

func eachSegment(path string, f func(string) string) string {
	plain := make([]byte, 0, len(path)+1)
	for s := range strings.SplitSeq(path, "/") {
		plain = append(append(plain, f(s)...), '/')
	}
	return string(plain[:len(plain)-1])
}

// decoded decodes escapes, also those of IIS (%u006c), and ASCII characters in too
// many bytes of UTF-8, as old decoders do.
func decoded(path string) string {
	return shortestForm(unescapeU(unescape(path)))
}

// unescapeU decodes each %uXXXX.
func unescapeU(text string) string {
	if !strings.Contains(text, "%u") && !strings.Contains(text, "%U") {
		return text
	}
	plain := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if r, ok := escapeU(text[i:]); ok {
			plain = utf8.AppendRune(plain, r)
			i += len("%u006c") - 1
			continue
		}
		plain = append(plain, text[i])
	}
	return string(plain)
}

func escapeU(text string) (r rune, ok bool) {
	const size = len("%u006c")
	if len(text) < size || text[0] != '%' || text[1]|0x20 != 'u' {
		return 0, false
	}
	for _, c := range []byte(text[2:size]) {
		digit, ok := fromHex(c)
		if !ok {
			return 0, false
		}
		r = r<<4 | rune(digit)
	}
	return r, true
}

// shortestForm replaces each ASCII character that is written in two bytes or more, which
// is not valid UTF-8.
func shortestForm(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return r == utf8.RuneError }) < 0 {
		return text
	}
	plain := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		c, size := overlong(text[i:])
		plain = append(plain, c)
		i += size
	}
	return string(plain)
}

// overlong returns the ASCII character at the start of a text that is written in two
// bytes or more, and their number; otherwise the first byte and 1.
func overlong(text string) (c byte, size int) {
	switch text[0] {
	case 0xc0, 0xc1:
		size = 2
	case 0xe0:
		size = 3
	case 0xf0:
		size = 4
	default:
		return text[0], 1
	}
	if len(text) < size {
		return text[0], 1
	}
	r := rune(text[0] & 1)
	if size > 2 {
		r = 0
	}
	for _, b := range []byte(text[1:size]) {
		if b&0xc0 != 0x80 {
			return text[0], 1
		}
		r = r<<6 | rune(b&0x3f)
	}
	if r >= utf8.RuneSelf {
		return text[0], 1
	}
	return byte(r), size
}
