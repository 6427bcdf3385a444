package limitsfile_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
)

// Each text follows the first two lines of a file.
func TestCommonMistakesInYAMLAreNamed(t *testing.T) {
	t.Parallel()
	const (
		tab     = "found a tab in the indentation; allowed: blanks"
		colon   = "found no YAML: mapping values are not allowed in this context; allowed: KEY: VALUE, with a blank after the colon"
		begins  = "found character that cannot start any token; allowed: quotes around a text that begins with @"
		named   = "; allowed: quotes around a text that begins with *"
		open    = "found unexpected end of stream; allowed: a quote that ends the text"
		indent  = "did not find expected key; allowed: as many blanks in front as the keys beside it have; quotes around all of a text, and none that stays open above"
		bracket = "; allowed: a comma between two entries, and a bracket that closes for each that opens"
	)
	for _, c := range []struct{ name, text, at, want string }{
		{"a tab", "\t- key: a\n", "3:1", tab},
		{"a tab after blanks", "- key: a\n  \tvalue: b\n", "4:3", tab},
		{"a tab before a key", "- key: a\n\tvalue: b\n", "4:1", tab},
		{"a tab after a dash", "-\tkey: a\n\tvalue: b\n", "3:2", tab},
		{"a tab deep within", "- key: a\n  rate_limit:\n  \trequests: 1\n", "5:3", tab},
		{"a tab in an empty line", "- key: a\n\n\t\n", "5:1", tab},

		{"a double quote", "- key: \"a\n  value: b\n- key: c\n", "3:8", open},
		{"a double quote that a later one ends", "- key: \"a\n  value: \"b\"\n", "4:11", indent},
		{"a double quote that one lines below ends", "- key: \"a\n  value: b\n- key: c\n- key: \"d\"\n", "6:9", indent},
		{"a single quote", "- key: it's\n- key: 'a\n  value: b\n", "4:8", open},
		{"more after a quote", "- key: \"a\"b\n", "3:11", indent},
		{"an escape", "- key: \"a\\d\"\n", "3:10", "found unknown escape character; allowed: \\\\ for a backslash"},

		{"no blank", "- key:a\n  value: b\n", "4:8", colon},
		{"no blank, below another", "- key: a\n  rate_limit:\n    requests:1\n    period: 1s\n", "6:11", colon},
		{"no blank in braces", "- {key: a, rate_limit: {requests:1}}\n", "3:25", "descriptors[0].rate_limit: found an unknown key \"requests:1\" in a rate_limit (requests: 1?)"},
		{"no blank after a dash", "-key: a\n", "3:1", "found an unknown key \"-key\" in a domain (- key?)"},
		{"two colons", "- key: a: b\n", "3:9", colon},
		{"a colon in a text", "- key: a\n  value: to: all\n", "4:12", colon},
		{"an address", "- key: a\n  value: http://a: b\n", "4:18", colon},

		{"a star", "- key: a\n  value: *\n", "4:10", named},
		{"a star and more", "- key: a\n  value: *.jpg\n", "4:10", named},
		{"a star and a name", "- key: a\n  value: *jpg\n", "4:13", "an alias without its anchor" + named},
		{"a star in braces", "- {key: a, value: *}\n", "3:19", named},
		{"a percent sign", "- key: %a\n", "3:8", begins},
		{"a percent sign in front", "%a: b\n", "3:3", named},
		{"an at sign", "- key: @a\n", "3:8", begins},
		{"an at sign after others", "- {key: \"@\", value: a@b, rate_limit: @c}\n", "3:38", begins},
		{"a backtick", "- key: `a`\n", "3:8", begins},
		{"an ampersand", "- key: & b\n", "3:8", named},
		{"a bar", "- key: |a\n", "3:9", "; allowed: quotes around a text that begins with |"},
		{"a greater sign", "- key: >a\n", "3:9", "; allowed: quotes around a text that begins with | or >"},
		{"a question mark", "- key: ?\n", "3:8", "; allowed: quotes around a text that begins with ?"},
		{"a comma", "- key: ,a\n", "3:8", "; allowed: a value; quotes around a text that begins with a comma"},
		{"beyond ASCII", "- {key: \"\u00e9\", value: @a}\n", "3:21", begins},

		{"a brace that is not closed", "- {key: a, rate_limit: {requests: 1, period: 1s}\n- {key: b}\n", "3:12", bracket},
		{"a bracket that is not closed", "- key: a\n  rate_limits: [{name: b}\n", "4:25", bracket},
		{"a bracket that a brace closes", "- {key: a, rate_limits: [{name: b}}\n", "3:34", bracket},
		{"a brace too many", "- {key: a}}\n", "3:11", "did not find expected key"},
		{"a bracket in front", "- key: ]a\n", "3:8", "; allowed: a value; quotes around a text that begins with a comma or a bracket"},
		{"no comma at the end of a line", "- {key: a,\n  value: b\n  rate_limit: {}}\n", "4", bracket},
		{"no comma in JSON", "- {\"key\": \"a\"\n  \"value\": \"b\"}\n", "3:8", bracket},

		{"too far to the right", "- key: a\n   value: b\n", "4:9", "and as many blanks in front as the keys beside it have"},
		{"too far to the left", "- key: a\n value: b\n", "4:2", indent},
		{"an item too far to the left", "  - key: a\n - key: b\n", "4:2", indent},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, end := range []string{"\n", "\r\n"} {
				_, err := limitstest.Load(t, strings.ReplaceAll("domain: d\ndescriptors:\n"+c.text, "\n", end))
				if err == nil || !strings.Contains(err.Error(), "limits.yaml:"+c.at+":") || !strings.Contains(err.Error(), c.want) {
					t.Errorf("with %q: got %v, want %s: %s", end, err, c.at, c.want)
				}
			}
		})
	}
}
