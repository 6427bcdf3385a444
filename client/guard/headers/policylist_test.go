package headers_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/client/guard/headers"
)

func TestFieldsOfPolicies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		add              []headers.Policy
		policies, limits string
	}{
		{"none", nil, "", ""},
		{"one", []headers.Policy{{Name: "hour", Quota: 100, Window: 3600, Remaining: 7, Reset: 12}}, `"hour";q=100;w=3600`, `"hour";r=7;t=12`},
		{"as large as an integer may be", []headers.Policy{{Name: "a", Quota: 999_999_999_999_999, Remaining: 999_999_999_999_998}}, `"a";q=999999999999999`, `"a";r=999999999999998;t=0`},
		{"larger", []headers.Policy{{Name: "a", Quota: 1 << 52, Remaining: 1_000_000_000_000_000}}, `"a";q=999999999999999`, `"a";r=999999999999999;t=0`},
		{"no window", []headers.Policy{{Name: "a", Quota: 1}}, `"a";q=1`, `"a";r=0;t=0`},
		{"requests in flight", []headers.Policy{{Name: "a", Quota: 5, Window: 60, Remaining: 2, Reset: 9, IsConcurrent: true}, {Name: "b"}},
			`"a";q=5;qu="concurrent-requests", "b";q=0`, `"a";r=2, "b";r=0;t=0`},
		{"several", []headers.Policy{{Name: "a", Quota: 1, Window: 1}, {Name: "b", Quota: 2, Window: 2, Remaining: 2}},
			`"a";q=1;w=1, "b";q=2;w=2`, `"a";r=0;t=0, "b";r=2;t=0`},
		{"equal names", []headers.Policy{{Name: "a"}, {Name: "a"}, {Name: "a"}}, `"a";q=0, "a-2";q=0, "a-3";q=0`, `"a";r=0;t=0, "a-2";r=0;t=0, "a-3";r=0;t=0`},
		{"a name that a second one gets", []headers.Policy{{Name: "a-2"}, {Name: "a"}, {Name: "a"}}, `"a-2";q=0, "a";q=0, "a-3";q=0`, `"a-2";r=0;t=0, "a";r=0;t=0, "a-3";r=0;t=0`},
		{"what is not for a string", []headers.Policy{{Name: "a\"b\\c\r\nd\u00e9"}}, `"a\"b\\c??d?";q=0`, `"a\"b\\c??d?";r=0;t=0`},
		{"names that are equal once they are written", []headers.Policy{{Name: "\u00e9"}, {Name: "?"}}, `"?";q=0, "?-2";q=0`, `"?";r=0;t=0, "?-2";r=0;t=0`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l headers.List
			for _, p := range c.add {
				l.Add(p)
			}
			if l.IsEmpty() != (len(c.add) == 0) {
				t.Errorf("IsEmpty is %t", l.IsEmpty())
			}
			if got := string(l.AppendPolicies(nil)); got != c.policies {
				t.Errorf("%s: %s, want %s", headers.PolicyField, got, c.policies)
			}
			if got := string(l.AppendLimits([]byte("x"))); got != "x"+c.limits {
				t.Errorf("%s: %s, want x%s", headers.LimitField, got, c.limits)
			}
		})
	}
}

// item is one of a list, whose name is a string of a structured field (RFC 9651, section
// 4.2.5).
var item = regexp.MustCompile(`^"((?:[ !#-\[\]-~]|\\["\\])*)";q=0(?:, |$)`)

// FuzzNames has any names written. A reader finds as many items as there are policies,
// each with another name.
func FuzzNames(f *testing.F) {
	f.Add("a,a,a-2")
	f.Add("\",\\,\x7f,\xff,\u00e9")
	f.Fuzz(func(t *testing.T, text string) {
		var l headers.List
		names := strings.Split(text, ",")
		for _, name := range names {
			l.Add(headers.Policy{Name: name})
		}
		found := make(map[string]bool)
		for rest := string(l.AppendPolicies(nil)); rest != ""; {
			m := item.FindStringSubmatch(rest)
			if m == nil || found[m[1]] {
				t.Fatalf("%q: at %q", text, rest)
			}
			found[m[1]] = true
			rest = rest[len(m[0]):]
		}
		if len(found) != len(names) {
			t.Errorf("%q: %d items", text, len(found))
		}
	})
}
