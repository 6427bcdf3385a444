package assign

import (
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// decodeUsual reads JSON as Encode writes it for most assignments: in form 1, without
// spaces and without texts that need escaping. It leaves everything else to decodeAny,
// which takes 5 us instead of 1.3: a daemon with a million assignments would otherwise
// need 6 s more CPU until it is ready.
func decodeUsual(text string) (*stored, bool) {
	p := parser{rest: text, ok: true}
	var s stored
	var seen []string
	var room [14]string
	seen = room[:0]
	p.literal("{")
	for p.ok {
		key := p.text()
		p.literal(":")
		for _, k := range seen {
			p.ok = p.ok && k != key
		}
		seen = append(seen, key)
		switch key {
		case "etag":
			s.ETag = p.text()
		case "domain":
			s.Domain = p.text()
		case "entries":
			s.Entries = p.entries()
		case "plan":
			s.Plan = p.text()
		case "numbers":
			s.Numbers = p.allNumbers()
		case "unlimited":
			p.literal("true")
			s.Unlimited = true
		case "blocked":
			p.literal("true")
			s.Blocked = true
		case "ends":
			s.Ends = p.number()
		case "blocked_until":
			s.BlockedUntil = p.number()
		case "until":
			s.Until = p.number()
		case "reason":
			s.Reason = p.text()
		case "by":
			s.By = p.text()
		case "at":
			s.At = p.number()
		default:
			return nil, false
		}
		if p.rest == "}" {
			return &s, p.ok
		}
		p.literal(",")
	}
	return nil, false
}

// parser reads from the beginning of a text. Once something is not as expected, ok is
// false and what is read means nothing.
type parser struct {
	rest string
	ok   bool
}

func (p *parser) literal(l string) {
	rest, found := strings.CutPrefix(p.rest, l)
	p.rest, p.ok = rest, p.ok && found
}

// has consumes a literal if it comes next, and reports whether it did.
func (p *parser) has(l string) bool {
	rest, found := strings.CutPrefix(p.rest, l)
	p.rest = rest
	return found
}

// text reads a string of printable ASCII without escapes.
func (p *parser) text() string {
	p.literal(`"`)
	for i := 0; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '"':
			text := p.rest[:i]
			p.rest = p.rest[i+1:]
			return text
		case c < ' ', c > '~', c == '\\':
			p.ok = false
			return ""
		}
	}
	p.ok = false
	return ""
}

// number reads an integer from 1 to 10^16-1.
func (p *parser) number() (n int64) {
	i := 0
	for ; i < len(p.rest) && i < 17 && '0' <= p.rest[i] && p.rest[i] <= '9'; i++ {
		n = n*10 + int64(p.rest[i]-'0')
	}
	p.ok = p.ok && 0 < i && i < 17 && p.rest[0] != '0'
	p.rest = p.rest[i:]
	return n
}

func (p *parser) entries() (entries []bucket.Entry) {
	p.literal("[")
	for p.ok {
		p.literal(`{"Key":`)
		key := p.text()
		p.literal(`,"Value":`)
		value := p.text()
		p.literal("}")
		entries = append(entries, bucket.Entry{Key: key, Value: value})
		if strings.HasPrefix(p.rest, "]") {
			break
		}
		p.literal(",")
	}
	p.literal("]")
	return entries
}

func (p *parser) allNumbers() (all []Numbers) {
	p.literal("[")
	for p.ok {
		var n Numbers
		p.literal("{")
		if p.has(`"limit":`) {
			n.Limit = p.text()
			p.literal(",")
		}
		p.literal(`"requests":`)
		n.Requests = p.number()
		if p.has(`,"period":`) {
			n.Period = time.Duration(p.number())
		}
		if p.has(`,"burst":`) {
			n.Burst = p.number()
		}
		p.literal("}")
		all = append(all, n)
		if strings.HasPrefix(p.rest, "]") {
			break
		}
		p.literal(",")
	}
	p.literal("]")
	return all
}
