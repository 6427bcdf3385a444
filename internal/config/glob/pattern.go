package glob

import "strings"

// pattern is a value in which each * stands for any run of bytes, even an empty one.
type pattern struct {
	// prefix is the text before the first star, suffix the text after the last, and
	// middle the texts between stars, in order.
	prefix, suffix string
	middle         []innerText
	text           string // as it was written
}

// innerText is a text between two stars; it is not empty.
type innerText struct {
	text string
	// slot is the slot of its last gram.
	slot uint16
}

// HasStar reports whether a value is a pattern.
func HasStar(value string) bool { return strings.Contains(value, "*") }

func newPattern(text string) pattern {
	parts := strings.Split(text, "*")
	p := pattern{prefix: parts[0], suffix: parts[len(parts)-1], text: text}
	for _, part := range parts[1 : len(parts)-1] {
		if part != "" {
			p.middle = append(p.middle, newInnerText(part))
		}
	}
	return p
}

// match reports whether the pattern matches the value. Each part takes the first free
// place; if the pattern can match at all, it matches that way.
func (p *pattern) match(value string) bool {
	if len(value) < len(p.prefix)+len(p.suffix) || !strings.HasPrefix(value, p.prefix) || !strings.HasSuffix(value, p.suffix) {
		return false
	}
	value = value[len(p.prefix) : len(value)-len(p.suffix)]
	for i := range p.middle {
		text := p.middle[i].text
		at := strings.Index(value, text)
		if at < 0 {
			return false
		}
		value = value[at+len(text):]
	}
	return true
}
