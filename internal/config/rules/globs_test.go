package rules_test

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

// matcher is a pattern as package regexp understands it.
func matcher(pattern string) *regexp.Regexp {
	parts := strings.Split(pattern, "*")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(`(?s)\A` + strings.Join(parts, ".*") + `\z`)
}

// randomText is of few letters, so that texts have much in common.
func randomText(r *rand.Rand, letters string, longest int) string {
	text := make([]byte, r.IntN(longest+1))
	for i := range text {
		text[i] = letters[r.IntN(len(letters))]
	}
	return string(text)
}

func TestFirstIsTheFirstThatMatches(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, patterns := range []int{0, 1, 8, 9, 40, 300} {
		for range 20 {
			var set rules.Globs
			var matchers []*regexp.Regexp
			for range patterns {
				text := randomText(r, "abc*", 8)
				if !rules.HasStar(text) {
					text += "*"
				}
				set.Add(text)
				matchers = append(matchers, matcher(text))
			}
			for range 200 {
				value := randomText(r, "abc", 12)
				want := -1
				for i, m := range matchers {
					if m.MatchString(value) {
						want = i
						break
					}
				}
				if got := set.First(value); got != want {
					t.Fatalf("of %d patterns %d is the first that matches %q, not %d", patterns, want, value, got)
				}
			}
		}
	}
}

func TestFirstThatCoversIsTheEarliestOfThem(t *testing.T) {
	var set rules.Globs
	for _, text := range []string{"ab*", "a*c", "a*", "abc*d", "b*"} {
		set.Add(text)
	}
	for i, want := range []int{0, 1, 2, 0, 4} {
		t.Run(set.Text(i), func(t *testing.T) {
			if got := set.FirstThatCovers(set.Text(i)); got != want {
				t.Errorf("%s is covered by %s first, not by %s", set.Text(i), set.Text(got), set.Text(want))
			}
		})
	}
	if got := set.FirstThatCoversAll(); got != -1 {
		t.Errorf("%s is said to match all", set.Text(got))
	}
	set.Add("**")
	if got := set.FirstThatCoversAll(); got != set.Len()-1 {
		t.Errorf("pattern %d is said to match all", got)
	}
}

// A pattern that is said to be never the first is not the first of any value.
func TestPatternsThatAreNeverFirst(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, patterns := range []int{2, 8, 9, 40} {
		never := 0
		for range 50 {
			var set rules.Globs
			for range patterns {
				set.Add(randomText(r, "abc", 2) + "*" + randomText(r, "abc*", 3))
			}
			hidden := make([]bool, patterns)
			for i := range hidden {
				if hidden[i] = set.IsNeverFirst(i); hidden[i] {
					never++
				}
			}
			for n := range 400 {
				value := randomText(r, "abc", 8)
				if n%40 == 0 {
					value = randomText(r, "abc", 2) + strings.Repeat("abc", rules.MaxSearchedValue) + randomText(r, "abc", 2)
				}
				if first := set.First(value); first >= 0 && hidden[first] {
					t.Fatalf("%s is the first of %d patterns that matches %.20q", set.Text(first), patterns, value)
				}
			}
		}
		if never == 0 {
			t.Errorf("of %d random patterns none is ever hidden", patterns)
		}
	}
	var set rules.Globs
	for _, text := range []string{"a*", "*", "b*", "ab*"} {
		set.Add(text)
	}
	for i, want := range []bool{false, false, true, true} {
		if got := set.IsNeverFirst(i); got != want {
			t.Errorf("%s is never the first: %t, want %t", set.Text(i), got, want)
		}
	}
}
