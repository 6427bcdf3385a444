package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

// Values that are too long are not searched for the texts between stars.
func TestLongValuesAreNotSearchedForManyPatterns(t *testing.T) {
	t.Parallel()
	const others = `
- {key: k, value: 'pre*', rate_limit: &l {requests: 1, period: 1s}}
- {key: k, value: '*.suf', rate_limit: *l}
- {key: k, value: 'a*z', rate_limit: *l}
- {key: k, rate_limit: *l}
`
	load := func(inner int) *rules.Domain {
		return limitstest.Domain(t, "domain: d\ndescriptors:\n"+limitstest.Patterns(inner, func(i int) string { return fmt.Sprintf("/p%d*/in%d*", i%2, i) })+others)
	}
	many, few := load(17), load(16)
	sized := func(text string, size int) string {
		return strings.Replace(text, "~", strings.Repeat("x", size-len(text)+1), 1)
	}
	const longest, long = rules.MaxSearchedValue, rules.MaxSearchedValue + 1
	for _, c := range []struct {
		name      string
		value     string
		many, few string
	}{
		{"as long as is searched", sized("/p1~/in3", longest), "k=/p1*/in3*", "k=/p1*/in3*"},
		{"a byte more", sized("/p1~/in3", long), "k", "k=/p1*/in3*"},
		{"as much text as a request has", sized("/p1~/in3", 1<<20), "k", "k=/p1*/in3*"},
		{"a prefix", sized("pre~", long), "k=pre*", "k=pre*"},
		{"a long prefix", sized("pre~", 1<<20), "k=pre*", "k=pre*"},
		{"a suffix", sized("~.suf", long), "k=*.suf", "k=*.suf"},
		{"both ends", sized("a~z", long), "k=a*z", "k=a*z"},
		{"one that is searched for before an end", sized("/p1/in1~.suf", longest), "k=/p1*/in1*", "k=/p1*/in1*"},
		{"one that is not, before an end", sized("/p1/in1~.suf", long), "k=*.suf", "k=/p1*/in1*"},
		{"none", sized("~", long), "k", "k"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, d := range []struct {
				*rules.Domain
				want string
			}{{many, c.many}, {few, c.few}} {
				if rule := d.Match([]bucket.Entry{{Key: "k", Value: c.value}}); rule == nil || rule.Path() != d.want {
					t.Errorf("%d bytes match %+v, want %s", len(c.value), rule, d.want)
				}
			}
		})
	}
}

func TestALongExactValueMatches(t *testing.T) {
	value := strings.Repeat("x", 10_000)
	d := limitstest.Domain(t, "domain: d\ndescriptors:\n"+limitstest.Patterns(20, func(i int) string { return fmt.Sprintf("*x*%d*", i) })+
		"- {key: k, value: "+value+", rate_limit: {requests: 1, period: 1s}}\n")
	if rule := d.Match([]bucket.Entry{{Key: "k", Value: value}}); rule == nil || rule.Path() != "k="+value {
		t.Errorf("got %v", rule)
	}
}
