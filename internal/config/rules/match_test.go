package rules_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
)

func TestMatchPrefersExactValuesThenPatterns(t *testing.T) {
	d := limitstest.Domain(t, `
domain: d
descriptors:
- {key: bare, rate_limit: &l {requests: 1, period: 1s}}
- {key: a_b, rate_limit: *l}
- {key: ab, value: c, rate_limit: *l}
- {key: x, value: "a*", rate_limit: *l}
- {key: x, value: "ab*", rate_limit: *l}
- {key: x, value: abc, rate_limit: *l}
- {key: x, rate_limit: *l}
- {key: star, value: "*", rate_limit: *l}
- {key: mid, value: "a*b*c", rate_limit: *l}
- {key: end, value: "*.example.com", rate_limit: *l}
- {key: type, value: 15, rate_limit: *l}
- {key: type, value: true, rate_limit: *l}
- {key: type, value: 1.50, rate_limit: *l}
- {key: type, value: 2024-01-01, rate_limit: *l}
- {key: type, value: "null", rate_limit: *l}
- {key: 15, value: 0x10, rate_limit: *l}
- key: up
  value: one
  descriptors:
  - {key: down, value: deep, rate_limit: *l}
- key: up
  rate_limit: *l
  descriptors:
  - {key: down, rate_limit: *l}
- {key: known, value: yes}
- {key: known, rate_limit: *l}
`)
	for _, c := range []struct{ entries, want string }{
		{"", ""},
		{"none=1", ""},
		{"bare=", "bare"},
		{"bare=1", "bare"},
		{"bare=1,bare=2", ""}, // deeper than the rule

		// Tuples, not joined strings.
		{"a_b=", "a_b"},
		{"a=b", ""},
		{"a=b_c", ""},
		{"ab=c", "ab=c"},
		{"a=bc", ""},
		{"abc=", ""},

		// Exact, then patterns in file order, then the bare key.
		{"x=abc", "x=abc"},
		{"x=abd", "x=a*"},
		{"x=a", "x=a*"},
		{"x=a*", "x=a*"},
		{"x=b", "x"},
		{"x=", "x"},
		{"star=", "star=*"},
		{"star=anything", "star=*"},
		{"mid=abc", "mid=a*b*c"},
		{"mid=a-b-b-c-c", "mid=a*b*c"},
		{"mid=ac", ""},
		{"mid=abcd", ""},
		{"end=.example.com", "end=*.example.com"},
		{"end=www.example.com", "end=*.example.com"},
		{"end=example.com", ""},

		// Values are what was written.
		{"type=15", "type=15"},
		{"type=015", ""},
		{"type=true", "type=true"},
		{"type=1.50", "type=1.50"},
		{"type=1.5", ""},
		{"type=2024-01-01", "type=2024-01-01"},
		{"type=null", "type=null"},
		{"15=0x10", "15=0x10"},

		// No way back: the exact value was chosen.
		{"up=one", ""},
		{"up=one,down=deep", "up=one / down=deep"},
		{"up=one,down=other", ""},
		{"up=two", "up"},
		{"up=two,down=deep", "up / down"},
		{"known=yes", ""},
		{"known=no", "known"},
	} {
		t.Run(c.entries, func(t *testing.T) {
			got := ""
			if rule := d.Match(limitstest.Entries(c.entries)); rule != nil {
				got = rule.Path()
			}
			if got != c.want {
				t.Errorf("%s matches %q, want %q", c.entries, got, c.want)
			}
		})
	}
}

func TestPlaceIsTheFirstValueOfTheHashTag(t *testing.T) {
	d := limitstest.Domain(t, "domain: d\nhash_tag: tenant")
	for es, want := range map[string]string{"tenant=t": "t", "user=u,tenant=t": "t", "tenant=1,tenant=2": "1", "tenant=": "", "user=u": "none", "": "none"} {
		t.Run(es, func(t *testing.T) {
			got, ok := d.Place(limitstest.Entries(es))
			if !ok {
				got = "none"
			}
			if got != want {
				t.Errorf("%s is placed by %s, want %s", es, got, want)
			}
		})
	}
	if _, ok := limitstest.Domain(t, "domain: d").Place(limitstest.Entries("=x")); ok {
		t.Error("a domain without hash_tag has a place")
	}
}

func TestPathCannotBeMistaken(t *testing.T) {
	d := limitstest.Domain(t, `
domain: d
descriptors:
- {key: "a / b=c", rate_limit: &l {requests: 1, period: 1s}}
- {key: a, value: "x\ty\e[2J", rate_limit: *l}
- {key: a, value: é/ü, rate_limit: *l}
`)
	var got []string
	for _, r := range d.Rules() {
		got = append(got, r.Path())
	}
	if s := strings.Join(got, "\n"); s != `"a / b=c"`+"\n"+`a="x\ty\x1b[2J"`+"\na=é/ü" {
		t.Errorf("paths are\n%s", s)
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	d := limitstest.Domain(t, limitstest.ManyRules(1000))
	es := limitstest.Entries("tenant=t7,user=u77,route=/api/v1")
	if d.Match(es) == nil {
		t.Fatal("no match")
	}
	if n := testing.AllocsPerRun(100, func() { d.Match(es) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
