package config_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// Each text follows the first two lines of a file.
func TestCommonMistakesInYAMLAreNamed(t *testing.T) {
	t.Parallel()
	const (
		tab     = "found a tab in the indentation; allowed: blanks"
		blank   = "found a colon without a blank after it; allowed: KEY: VALUE"
		colon   = "found a second colon; allowed: quotes around a text"
		begins  = "found a text that begins with "
		opens   = " that begins a text and none that ends it; allowed: a text between two of them"
		indents = "found a line that is indented by "
	)
	for _, c := range []struct{ name, text, want string }{
		{"a tab", "\t- key: a\n", "3:1: " + tab},
		{"a tab after blanks", "- key: a\n  \tvalue: b\n", "4:3: " + tab},
		{"a tab before a key", "- key: a\n\tvalue: b\n", "4:1: " + tab},
		{"a tab after a dash", "-\tkey: a\n\tvalue: b\n", "3:2: " + tab},
		{"a tab deep within", "- key: a\n  rate_limit:\n  \trequests: 1\n", "5:3: " + tab},
		{"a tab in an empty line", "- key: a\n\n\t\n", "5:1: " + tab},

		{"a double quote", "- key: \"a\n  value: b\n- key: c\n", "3:8: found a \"" + opens},
		{"a double quote that a later one ends", "- key: \"a\n  value: \"b\"\n", "3:8: found a \"" + opens},
		{"a double quote that one lines below ends", "- key: \"a\n  value: b\n- key: c\n- key: \"d\"\n", "3:8: found a \"" + opens},
		{"a single quote", "- key: it's\n- key: 'a\n  value: b\n", "4:8: found a '" + opens},
		{"more after a quote", "- key: \"a\"b\n", "3:11: found more after the quote that ends a text"},
		{"an escape", "- key: \"a\\d\"\n", "3:10: found a backslash that begins no escape; allowed: \\\\ for a backslash"},

		{"no blank", "- key:a\n  value: b\n", "3:6: " + blank},
		{"no blank, below another", "- key: a\n  rate_limit:\n    requests:1\n    period: 1s\n", "5:13: " + blank},
		{"no blank, twice", "- key: a\n  rate_limit:\n    requests:1\n    # so many\n    unit:s\n    period: 1s\n", "5:13: " + blank},
		{"no blank in braces", "- {key: a, rate_limit: {requests:1}}\n", "descriptors[0].rate_limit: found an unknown key \"requests:1\" in a rate_limit (requests: 1?)"},
		{"no blank after a dash", "-key: a\n", "3:1: found an unknown key \"-key\" in a domain (- key?)"},
		{"two colons", "- key: a: b\n", "3:9: " + colon},
		{"a colon in a text", "- key: a\n  value: to: all\n", "4:12: " + colon},
		{"an address", "- key: a\n  value: http://a: b\n", "4:18: " + colon},

		{"a star", "- key: a\n  value: *\n", "4:10: " + begins + "*, which makes it an alias"},
		{"a star and more", "- key: a\n  value: *.jpg\n", "4:10: " + begins + "*, which makes it an alias"},
		{"a star and a name", "- key: a\n  value: *jpg\n", "4:10: " + begins + "*, which makes it an alias"},
		{"a star in braces", "- {key: a, value: *}\n", "3:19: " + begins + "*, which makes it an alias"},
		{"a percent sign", "- key: %a\n", "3:8: " + begins + "%; allowed: quotes around it, such as \"%...\""},
		{"a percent sign in front", "%a: b\n", "3:1: " + begins + "%"},
		{"an at sign", "- key: @a\n", "3:8: " + begins + "@"},
		{"an at sign after others", "- {key: \"@\", value: a@b, rate_limit: @c}\n", "3:38: " + begins + "@"},
		{"a backtick", "- key: `a`\n", "3:8: " + begins + "`"},
		{"an ampersand", "- key: & b\n", "3:8: " + begins + "&"},
		{"a bar", "- key: |a\n", "3:8: " + begins + "|"},
		{"a greater sign", "- key: >a\n", "3:8: " + begins + ">"},
		{"a question mark", "- key: ?\n", "3:8: " + begins + "?"},
		{"a comma", "- key: ,a\n", "3:8: " + begins + ","},
		{"beyond ASCII", "- {key: \"\u00e9\", value: @a}\n", "3:21: " + begins + "@"},

		{"a brace that is not closed", "- {key: a, rate_limit: {requests: 1, period: 1s}\n- {key: b}\n", "3:3: found a { that is not closed"},
		{"a bracket that is not closed", "- key: a\n  rate_limits: [{name: b}\n", "4:16: found a [ that is not closed"},
		{"a bracket that a brace closes", "- {key: a, rate_limits: [{name: b}}\n", "3:35: found a } that closes nothing"},
		{"a brace too many", "- {key: a}}\n", "3:11: found a } that closes nothing"},
		{"a bracket in front", "- key: ]a\n", "3:8: found a ] that closes nothing"},
		{"no comma", "- {key: a value: b}\n", "3:16: " + colon},
		{"no comma at the end of a line", "- {key: a,\n  value: b\n  rate_limit: {}}\n", "4:11: found an entry without a comma after it; allowed: a comma between two entries"},

		{"no comma in JSON", "- {\"key\": \"a\"\n  \"value\": \"b\"}\n", "3:3: found a { that is not closed, or two entries in it without a comma between them"},

		{"too far to the right", "- key: a\n   value: b\n", "4:4: " + indents + "3 blanks; allowed: as many blanks as one above that it belongs to: 0 2"},
		{"too far to the left", "- key: a\n value: b\n", "4:2: " + indents + "1 blank; allowed: as many blanks as one above that it belongs to: 0 2"},
		{"an item too far to the left", "  - key: a\n - key: b\n", "4:2: " + indents + "1 blank"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, end := range []string{"\n", "\r\n"} {
				_, err := load(t, strings.ReplaceAll("domain: d\ndescriptors:\n"+c.text, "\n", end))
				if err == nil || !strings.Contains(err.Error(), "limits.yaml:"+c.want) && !strings.Contains(err.Error(), ": "+c.want) {
					t.Errorf("with %q: got %v, want %s", end, err, c.want)
				}
			}
		})
	}
}

func TestMistakesInAPasswordDoNotShowIt(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"password: @hunter2", "password: *hunter2", "password: \"hunter2\\d\"", "password: 'hunter2", "password:hunter2\n  mode: single",
		"password: hunter2: x", "password: \"hun\"hunter2", "\tpassword: hunter2", " password: hunter2\n  mode: x", "password: {hunter2",
	} {
		// The name of a test is in the path of its files.
		t.Run(strings.ReplaceAll(text, "hunter", "SECRET"), func(t *testing.T) {
			path := filetest.Write(t, t.TempDir(), "settings.yaml", "redis:\n  "+text+"\n")
			if _, _, err := settings.Load(nil, nil, path); err == nil || strings.Contains(err.Error(), "hunter") {
				t.Errorf("%q: %v", text, err)
			}
		})
	}
}
