package rules_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
)

// slowMatch is the definition of Match, step by step.
func slowMatch(level []*limitstest.Branch, es []bucket.Entry) *limitstest.Branch {
	var chosen *limitstest.Branch
	for _, r := range level {
		if r.Key == es[0].Key && r.Value != "" && !strings.Contains(r.Value, "*") && r.Value == es[0].Value {
			chosen = r
		}
	}
	for _, r := range level {
		if chosen == nil && r.Key == es[0].Key && strings.Contains(r.Value, "*") && slowGlob(r.Value, es[0].Value) {
			chosen = r
		}
	}
	for _, r := range level {
		if chosen == nil && r.Key == es[0].Key && r.Value == "" {
			chosen = r
		}
	}
	switch {
	case chosen == nil:
		return nil
	case len(es) > 1:
		return slowMatch(chosen.Below, es[1:])
	case !chosen.Limited:
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

// The test compares Match with its definition on random rules,
// and holds each rule that is said never to match to it.
func TestMatchAgainstOracle(t *testing.T) {
	t.Parallel()
	matched, cases := 0, 0
	for seed := range soaktest.Long[uint64](40, 1200) {
		r := rand.New(rand.NewPCG(seed, 1))
		level, ids := limitstest.RandomLevel(r, 3, 40), make(map[*limitstest.Branch]int64)
		var s strings.Builder
		s.WriteString("domain: d\ndescriptors: ")
		limitstest.WriteLevel(&s, level, ids)
		rules, err := limitstest.Load(t, s.String())
		if err != nil {
			t.Fatal(err)
		}
		d := rules.Domain("d")
		for range 100 {
			es := make([]bucket.Entry, 1+r.IntN(3))
			for i := range es {
				es[i] = bucket.Entry{Key: "k" + limitstest.RandomText(r, "ab_", 1), Value: limitstest.RandomText(r, "ab*_", 6)}
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
	for seed := range soaktest.Long[uint64](20, 600) {
		r := rand.New(rand.NewPCG(seed, 7))
		letters := []string{"ab", "abc", "abcdefgh"}[r.IntN(3)]
		seen := make(map[string]bool)
		var list []string
		for range 9 + r.IntN(200) {
			var parts []string
			for range 2 + r.IntN(3) {
				parts = append(parts, limitstest.RandomText(r, letters, 12))
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
		d := limitstest.Domain(t, s.String())
		for range 200 {
			value := limitstest.RandomText(r, letters, 60)
			switch r.IntN(4) {
			case 0, 1:
				for _, part := range strings.SplitAfter(list[r.IntN(len(list))], "*") {
					value = strings.TrimSuffix(value+part, "*") + limitstest.RandomText(r, letters, 6)
				}
			case 2: // what several have, in another order
				for range 5 {
					parts := strings.Split(list[r.IntN(len(list))], "*")
					slices.Reverse(parts)
					value += strings.Join(parts, limitstest.RandomText(r, letters, 2))
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
