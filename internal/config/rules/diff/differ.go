package diff

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Effect is the effect on requests of a difference between two sets of rules.
type Effect string

// Effects.
const (
	// Stricter rules allow less than before and Looser ones more, never the other way
	// round.
	Stricter Effect = "stricter"
	Looser   Effect = "looser"
	// Changed rules allow more in some cases and less in others.
	Changed Effect = "changed"
	// Reset means that counts start from zero because their keys change.
	Reset Effect = "reset"
	// Matched means that requests get the limits of another rule than before.
	Matched Effect = "matched"
)

// Difference is one effect of new rules that replace old ones.
type Difference struct {
	Domain string `json:"domain"`
	// Rule is the path of the rule or descriptor; empty: the whole domain.
	Rule   string `json:"rule"`
	Effect Effect `json:"effect"`
	// Text describes the difference in plain words.
	Text string `json:"text"`
}

// differ compares a domain with the earlier one of that name. One of them may be nil.
type differ struct {
	before, after *rules.Domain
	name          string
	found         []Difference
}

func (d *differ) add(path string, effect Effect, format string, args ...any) {
	d.found = append(d.found, Difference{Domain: d.name, Rule: path, Effect: effect, Text: fmt.Sprintf(format, args...)})
}

func orNone(name string) string {
	if name == "" {
		return "none"
	}
	return yamlfile.Printable(name)
}

func ifElse(condition bool, yes, no Effect) Effect {
	if condition {
		return yes
	}
	return no
}
