package settings

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/statsd"
)

// Statsd is about a statsd server that receives counts with the names of
// envoyproxy/ratelimit.
type Statsd struct {
	// Address is host:port; empty means none.
	Address  string
	Protocol StatsdProtocol
	// Prefix precedes all names; it may be empty.
	Prefix string
	// Tags are added to all counts.
	Tags map[string]string
	// Dog tells whether tags are separate from names, as in DogStatsD.
	Dog bool
	// Rules change names. They are valid.
	Rules []StatsdRule
	// Interval is how often counts are sent.
	Interval time.Duration
}

// StatsdRule holds the arguments of statsd.NewRule.
type StatsdRule struct {
	Pattern string            `json:"pattern"`
	Name    string            `json:"name"`
	Tags    map[string]string `json:"tags,omitempty"`
}

// statsdRulesSetting is a list of rules in JSON, or nothing.
func statsdRulesSetting() settingKind[[]StatsdRule] {
	return settingKind[[]StatsdRule]{
		word:    "JSON",
		allowed: `a text with a list in JSON, each item {"pattern": EXPRESSION, "name": NAME, "tags": {KEY: VALUE}}, or empty for none`,
		show: func(rules []StatsdRule) string {
			if rules == nil {
				return ""
			}
			return statsdRulesText(rules)
		},
		parse: func(text string) (rules []StatsdRule, _ *settingComplaint) {
			if text == "" {
				return nil, nil
			}
			read := json.NewDecoder(strings.NewReader(text))
			read.DisallowUnknownFields()
			if err := read.Decode(&rules); err != nil || read.More() {
				return nil, complain(text)
			}
			for i, r := range rules {
				if _, err := statsd.NewRule(r.Pattern, r.Name, r.Tags); err != nil {
					return nil, complainWith(text, fmt.Sprintf("with rule %d mended: %s", i+1, err))
				}
			}
			return rules, nil
		},
	}
}

// statsdRulesText returns rules as the setting spells them.
func statsdRulesText(rules []StatsdRule) string {
	var text strings.Builder
	write := json.NewEncoder(&text)
	write.SetEscapeHTML(false)
	if err := write.Encode(rules); err != nil {
		panic(err) // texts always encode
	}
	return strings.TrimSpace(text.String())
}
