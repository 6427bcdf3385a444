package limitstest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Branch is a descriptor with the ones below it.
type Branch struct {
	Key, Value string
	Limited    bool
	Below      []*Branch
}

// RandomText returns up to n letters, few enough that texts often agree.
func RandomText(r *rand.Rand, letters string, n int) string {
	b := make([]byte, r.IntN(n+1))
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return string(b)
}

// RandomLevel returns up to so many descriptors, with others below them.
func RandomLevel(r *rand.Rand, depth, maxLength int) []*Branch {
	var level []*Branch
	seen := make(map[[2]string]bool)
	for range r.IntN(maxLength) {
		rule := &Branch{Key: "k" + RandomText(r, "ab_", 1), Value: RandomText(r, "ab*_", 5), Limited: r.IntN(4) > 0}
		if seen[[2]string{rule.Key, rule.Value}] {
			continue
		}
		seen[[2]string{rule.Key, rule.Value}] = true
		if depth > 1 && r.IntN(2) == 0 {
			rule.Below = RandomLevel(r, depth-1, 8)
		}
		level = append(level, rule)
	}
	return level
}

// WriteLevel writes the level as YAML; the number in a limit identifies the rule.
func WriteLevel(s *strings.Builder, level []*Branch, ids map[*Branch]int64) {
	s.WriteString("[")
	for i, rule := range level {
		if i > 0 {
			s.WriteString(", ")
		}
		fmt.Fprintf(s, "{key: %q, value: %q", rule.Key, rule.Value)
		if rule.Limited {
			ids[rule] = int64(len(ids) + 1)
			fmt.Fprintf(s, ", rate_limit: {requests: %d, period: 1s}", ids[rule])
		}
		if rule.Below != nil {
			s.WriteString(", descriptors: ")
			WriteLevel(s, rule.Below, ids)
		}
		s.WriteString("}")
	}
	s.WriteString("]")
}
