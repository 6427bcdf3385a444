package config_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
)

func TestMatchPrefersExactValuesThenPatterns(t *testing.T) {
	d := mustLoad(t, `
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
			if rule := d.Match(entries(c.entries)); rule != nil {
				got = rule.Path()
			}
			if got != c.want {
				t.Errorf("%s matches %q, want %q", c.entries, got, c.want)
			}
		})
	}
}

func TestPlaceIsTheFirstValueOfTheHashTag(t *testing.T) {
	d := mustLoad(t, "domain: d\nhash_tag: tenant")
	for es, want := range map[string]string{"tenant=t": "t", "user=u,tenant=t": "t", "tenant=1,tenant=2": "1", "tenant=": "", "user=u": "none", "": "none"} {
		t.Run(es, func(t *testing.T) {
			got, ok := d.Place(entries(es))
			if !ok {
				got = "none"
			}
			if got != want {
				t.Errorf("%s is placed by %s, want %s", es, got, want)
			}
		})
	}
	if _, ok := mustLoad(t, "domain: d").Place(entries("=x")); ok {
		t.Error("a domain without hash_tag has a place")
	}
}

func TestPathCannotBeMistaken(t *testing.T) {
	d := mustLoad(t, `
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

// slowRule is a descriptor as the oracle sees it.
type slowRule struct {
	key, value string
	limited    bool
	below      []*slowRule
}

// slowMatch is the definition of Match, step by step.
func slowMatch(level []*slowRule, es []bucket.Entry) *slowRule {
	var chosen *slowRule
	for _, r := range level {
		if r.key == es[0].Key && r.value != "" && !strings.Contains(r.value, "*") && r.value == es[0].Value {
			chosen = r
		}
	}
	for _, r := range level {
		if chosen == nil && r.key == es[0].Key && strings.Contains(r.value, "*") && slowGlob(r.value, es[0].Value) {
			chosen = r
		}
	}
	for _, r := range level {
		if chosen == nil && r.key == es[0].Key && r.value == "" {
			chosen = r
		}
	}
	switch {
	case chosen == nil:
		return nil
	case len(es) > 1:
		return slowMatch(chosen.below, es[1:])
	case !chosen.limited:
		return nil
	}
	return chosen
}

func slowGlob(pattern, value string) bool {
	if pattern == "" {
		return value == ""
	}
	if pattern[0] == '*' {
		return slowGlob(pattern[1:], value) || value != "" && slowGlob(pattern, value[1:])
	}
	return value != "" && pattern[0] == value[0] && slowGlob(pattern[1:], value[1:])
}

// randomText returns up to n letters, few enough that they often agree.
func randomText(r *rand.Rand, letters string, n int) string {
	b := make([]byte, r.IntN(n+1))
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return string(b)
}

func randomLevel(r *rand.Rand, depth, most int) []*slowRule {
	var level []*slowRule
	seen := make(map[[2]string]bool)
	for range r.IntN(most) {
		rule := &slowRule{key: "k" + randomText(r, "ab_", 1), value: randomText(r, "ab*_", 5), limited: r.IntN(4) > 0}
		if seen[[2]string{rule.key, rule.value}] {
			continue
		}
		seen[[2]string{rule.key, rule.value}] = true
		if depth > 1 && r.IntN(2) == 0 {
			rule.below = randomLevel(r, depth-1, 8)
		}
		level = append(level, rule)
	}
	return level
}

// writeLevel writes the level as YAML; the number in a limit tells the rules
// apart.
func writeLevel(s *strings.Builder, level []*slowRule, ids map[*slowRule]int64) {
	s.WriteString("[")
	for i, rule := range level {
		if i > 0 {
			s.WriteString(", ")
		}
		fmt.Fprintf(s, "{key: %q, value: %q", rule.key, rule.value)
		if rule.limited {
			ids[rule] = int64(len(ids) + 1)
			fmt.Fprintf(s, ", rate_limit: {requests: %d, period: 1s}", ids[rule])
		}
		if rule.below != nil {
			s.WriteString(", descriptors: ")
			writeLevel(s, rule.below, ids)
		}
		s.WriteString("}")
	}
	s.WriteString("]")
}

// The test compares Match with its definition on random rules,
// and holds each rule that is said never to match to it.
func TestMatchAgainstOracle(t *testing.T) {
	t.Parallel()
	matched, cases := 0, 0
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 1))
		level, ids := randomLevel(r, 3, 40), make(map[*slowRule]int64)
		var s strings.Builder
		s.WriteString("domain: d\ndescriptors: ")
		writeLevel(&s, level, ids)
		rules, err := load(t, s.String())
		if err != nil {
			t.Fatal(err)
		}
		d := rules.Domain("d")
		for range 100 {
			es := make([]bucket.Entry, 1+r.IntN(3))
			for i := range es {
				es[i] = bucket.Entry{Key: "k" + randomText(r, "ab_", 1), Value: randomText(r, "ab*_", 6)}
			}
			var got, want int64
			if rule := d.Match(es); rule != nil {
				got = rule.Limits[0].Requests
			}
			if rule := slowMatch(level, es); rule != nil {
				want = ids[rule]
				matched++
			}
			cases++
			if got != want {
				t.Fatalf("seed %d: %v matches limit %d, want %d, in\n%s", seed, es, got, want, s.String())
			}
		}
	}
	if matched < cases/10 {
		t.Errorf("only %d of %d cases matched: the test is too weak", matched, cases)
	}
}

// The test compares Match with its definition where one key has many
// patterns, long enough to be found by any part of them.
func TestManyPatternsAgainstOracle(t *testing.T) {
	t.Parallel()
	matched, cases := 0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		letters := []string{"ab", "abc", "abcdefgh"}[r.IntN(3)]
		seen := make(map[string]bool)
		var list []string
		for range 9 + r.IntN(200) {
			var parts []string
			for range 2 + r.IntN(3) {
				parts = append(parts, randomText(r, letters, 12))
			}
			if p := strings.Join(parts, "*"); !seen[p] && (strings.Trim(p, "*") != "" || r.IntN(200) == 0) {
				seen[p] = true
				list = append(list, p)
			}
		}
		var s strings.Builder
		s.WriteString("domain: d\ndescriptors:\n")
		for i, p := range list {
			fmt.Fprintf(&s, "- {key: k, value: '%s', rate_limit: {requests: %d, period: 1s}}\n", p, i+1)
		}
		d := mustLoad(t, s.String())
		for range 200 {
			value := randomText(r, letters, 60)
			switch r.IntN(4) {
			case 0, 1:
				for _, part := range strings.SplitAfter(list[r.IntN(len(list))], "*") {
					value = strings.TrimSuffix(value+part, "*") + randomText(r, letters, 6)
				}
			case 2: // what several have, in another order
				for range 5 {
					parts := strings.Split(list[r.IntN(len(list))], "*")
					slices.Reverse(parts)
					value += strings.Join(parts, randomText(r, letters, 2))
				}
			}
			var got, want int64
			if rule := d.Match([]bucket.Entry{{Key: "k", Value: value}}); rule != nil {
				got = rule.Limits[0].Requests
				matched++
			}
			if i := slices.IndexFunc(list, func(p string) bool { return slowGlob(p, value) }); i >= 0 {
				want = int64(i + 1)
			}
			cases++
			if got != want {
				t.Fatalf("seed %d: %q matches limit %d, want %d, in\n%s", seed, value, got, want, s.String())
			}
		}
	}
	if matched < cases/10 || matched > cases*9/10 {
		t.Errorf("%d of %d cases matched: the test is too weak", matched, cases)
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	d := manyRules(t, 1000)
	es := entries("tenant=t7,user=u77,route=/api/v1")
	if d.Match(es) == nil {
		t.Fatal("no match")
	}
	if n := testing.AllocsPerRun(100, func() { d.Match(es) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// manyRules is a domain of n rules, three levels deep, with patterns.
func manyRules(t testing.TB, n int) *config.Domain { return mustLoad(t, manyRulesText(n)) }

func manyRulesText(n int) string {
	var s strings.Builder
	s.WriteString("domain: d\ndescriptors:\n- key: tenant\n  descriptors:\n")
	for i := range n / 2 {
		fmt.Fprintf(&s, "  - key: user\n    value: u%d\n    descriptors:\n", i)
		s.WriteString("    - {key: route, value: \"/api/*\", rate_limit: {requests: 100, period: 60s}}\n    - {key: route, rate_limit: {requests: 10, period: 60s}}\n")
	}
	s.WriteString("  - key: user\n    value: 'u*'\n    descriptors: [{key: route, rate_limit: {requests: 1, period: 1s}}]\n")
	return s.String()
}

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		d := manyRules(b, n)
		var subjects [][]bucket.Entry
		r := rand.New(rand.NewPCG(1, 2))
		for range 1024 {
			subjects = append(subjects, entries(fmt.Sprintf("tenant=t%d,user=u%d,route=/api/v1", r.IntN(100), r.IntN(n/2))))
		}
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if d.Match(subjects[i%len(subjects)]) == nil {
					b.Fatal("no match")
				}
			}
		})
	}
	var s strings.Builder
	s.WriteString("domain: d\ndescriptors:\n")
	for i := range 100_000 {
		fmt.Fprintf(&s, "- {key: path, value: '/service%d/*', rate_limit: {requests: 1, period: 1s}}\n", i)
	}
	d := mustLoad(b, s.String())
	es := entries("path=/service77777/x")
	benchmarkMixedPatterns(b)
	b.Run("patterns=100000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if d.Match(es) == nil {
				b.Fatal("no match")
			}
		}
	})
}

// benchmarkMixedPatterns matches against 1,000 patterns under one key, with
// stars that lead, trail and stand inside.
func benchmarkMixedPatterns(b *testing.B) {
	r := rand.New(rand.NewPCG(3, 4))
	var s strings.Builder
	s.WriteString("domain: d\ndescriptors:\n")
	var values []string
	for i := range 1000 {
		word := fmt.Sprintf("%x", r.Uint64()>>(4*r.IntN(12)))
		pattern := [...]string{word + "*", "*" + word, word + "*.json", "/v1/" + word + "/*", "*/" + word + "/*", "/" + word[:1] + "*/" + word + "*.html"}[i%6]
		fmt.Fprintf(&s, "- {key: path, value: '%s', rate_limit: {requests: 1, period: 1s}}\n", pattern)
		values = append(values, strings.ReplaceAll(pattern, "*", "some/thing"), "/none/of/them/"+word)
	}
	d := mustLoad(b, s.String())
	var subjects [][]bucket.Entry
	for _, v := range values {
		subjects = append(subjects, []bucket.Entry{{Key: "path", Value: v}})
	}
	b.Run("mixed-patterns=1000", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			d.Match(subjects[i%len(subjects)])
		}
	})
}
