package limitsfile_test

import (
	"strings"
	"testing"
)

func TestWarnsOfValuesThatEscapeNestedRules(t *testing.T) {
	const day = "rate_limit: {unit: day}"
	for _, c := range []struct{ name, descriptors, want string }{
		{"a value without the nested rule", "- {key: a, descriptors: [{key: p, " + day + "}]}\n- {key: a, value: x, " + day + "}",
			"4:3: descriptors[1]: requests with this value match here, and never reach the rule a / p, which is not repeated here: they have no limit there"},
		{"a part of the tree, once for a key", "- {key: a, descriptors: [{key: p, " + day + "}, {key: q, descriptors: [{key: r, " + day + "}]}]}\n- {key: a, value: x, descriptors: [{key: p, " + day + "}, {key: q, " + day + "}]}\n- {key: a, value: y}",
			"4:3: descriptors[1]: requests with this value match here, and never reach the rule a / q / r, which is not repeated here: they have no limit there"},
		{"a pattern", "- {key: a, descriptors: [{key: p, " + day + "}]}\n- {key: a, value: 'x*', descriptors: [{key: p, value: 'y*', " + day + "}]}",
			"4:3: descriptors[1]: requests with this value match here, and never reach the rule a / p, which is not repeated here: they have no limit there"},
		{"below a pattern", "- {key: a, value: 'x*', descriptors: [{key: p, value: v, " + day + "}]}\n- {key: a, value: xy, descriptors: [{key: p, value: w, " + day + "}]}",
			"4:3: descriptors[1]: requests with this value match here, and never reach the rule a=x* / p=v, which is not repeated here: they have no limit there"},
		{"the whole tree", "- {key: a, descriptors: [{key: p, value: v, " + day + "}, {key: p, value: 'v*', " + day + "}]}\n- {key: a, value: x, descriptors: [{key: p, " + day + "}]}", ""},
		{"unlimited", "- {key: a, descriptors: [{key: p, " + day + "}]}\n- {key: a, value: x, rate_limit: {unlimited: true}}", ""},
		{"no nested rules", "- {key: a, " + day + "}\n- {key: a, value: x, " + day + "}", ""},
		{"nested rules of the value only", "- {key: a, " + day + "}\n- {key: a, value: x, " + day + ", descriptors: [{key: p, " + day + "}]}", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strings.Join(warningsOf(t, "domain: d\ndescriptors:\n"+c.descriptors+"\n"), "\n"); got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}
