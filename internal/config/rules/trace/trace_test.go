package trace_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// show returns where a search ends as text, and why there is no rule.
func show(s *trace.Search) string {
	if s.Reached == nil {
		return shortPaths(s.Why())
	}
	return fmt.Sprintf("%d: %s:%d; %s", s.Depth, s.Reached.Path, s.Reached.Line, shortPaths(s.Why()))
}

// shortPaths leaves only the last part of each file's path.
func shortPaths(text string) string {
	words := strings.SplitAfter(text, "(")
	for i, w := range words {
		if at := strings.Index(w, "limits.yaml"); at >= 0 {
			words[i] = w[at:]
		}
	}
	return strings.Join(words, "")
}

const traced = `domain: d
descriptors:
- key: plan
  value: gold
  rate_limit: {requests: 1, period: 1s}
- key: plan
  value: "silver "
  rate_limit: {requests: 1, period: 1s}
- key: plan
  value: g*
  rate_limit: {requests: 1, period: 1s}
- key: plan
  descriptors:
  - key: user
    descriptors:
    - key: route
      rate_limit: {requests: 1, period: 1s}
- key: path
  value: /api/
  descriptors:
  - key: method
    value: GET
    rate_limit: {requests: 1, period: 1s}
- key: nothing
  descriptors:
  - key: more
`

func TestSearches(t *testing.T) {
	t.Parallel()
	r, err := limitstest.Load(t, traced)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, entries string
		miss          trace.Miss
		want          string
	}{
		{"an exact value", "plan=gold", trace.NotMissed, "1: plan=gold:3; "},
		{"a pattern", "plan=golf", trace.NotMissed, "1: plan=g*:9; "},
		{"to the end", "plan=x,user=1,route=/", trace.NotMissed, "3: plan / user / route:16; "},

		{"too short", "plan=x", trace.TooShort, "1: plan:12; plan=x is only the beginning of a rule, such as plan / user / route (limits.yaml:16)"},
		{"nothing to begin", "nothing=x", trace.TooShort, "1: nothing:24; nothing=x leads to no limit"},
		{"too long", "plan=gold,user=1", trace.TooLong, "1: plan=gold:3; plan=gold (limits.yaml:3) has a limit, but the descriptor goes on with user=1, and a rule is only for descriptors of its own length"},
		{"too long, without a limit", "nothing=1,more=2,most=3", trace.TooLong, "2: nothing / more:26; no descriptor below nothing / more (limits.yaml:26) goes on with most=3"},

		{"a misspelt key", "paln=gold", trace.MissedKey, "no descriptor here has the key paln; did you mean plan (limits.yaml:3)?"},
		{"a key in other case", "PLAN=gold", trace.MissedKey, "no descriptor here has the key PLAN; did you mean plan (limits.yaml:3)?"},
		{"a misspelt key further in", "plan=x,uzer=1", trace.MissedKey, "1: plan:12; no descriptor below plan (limits.yaml:12) has the key uzer; did you mean plan / user (limits.yaml:14)?"},
		{"a key of another level", "method=GET", trace.MissedKey, "no descriptor here has the key method; did you mean path=/api/ / method (limits.yaml:21)?"},
		{"another order", "plan=x,path=/api/", trace.MissedKey, "1: plan:12; no descriptor below plan (limits.yaml:12) has the key path; did you mean path (limits.yaml:18)?"},
		{"another key", "zone=7", trace.MissedKey, "no descriptor here has the key zone"},

		{"a slash", "path=/api", trace.MissedValue, "no descriptor here matches path=/api; did you mean path=/api/ (limits.yaml:18)?"},
		{"case", "path=/api/,method=get", trace.MissedValue, "1: path=/api/:18; no descriptor below path=/api/ (limits.yaml:18) matches method=get; did you mean path=/api/ / method=GET (limits.yaml:21)?"},
		{"another value", "path=/metrics", trace.MissedValue, "no descriptor here matches path=/metrics"},
	} {
		s := trace.Of(r.Domain("d"), limitstest.Entries(tc.entries), trace.MaxLooks)
		if got := show(s); got != tc.want || s.Miss != tc.miss {
			t.Errorf("%s: %d,\n%s\nwant %d,\n%s", tc.name, s.Miss, got, tc.miss, tc.want)
		}
	}
	// White space around the value of an exact one, beside nothing that takes all values.
	r, err = limitstest.Load(t, "domain: d\ndescriptors:\n- {key: plan, value: 'silver ', rate_limit: {requests: 1, period: 1s}}\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := show(trace.Of(r.Domain("d"), limitstest.Entries("plan=silver"), trace.MaxLooks)); got != `no descriptor here matches plan=silver; did you mean plan="silver " (limits.yaml:3)?` {
		t.Errorf("white space: %s", got)
	}
}

// Of merged domains each descriptor has the file in which it stands.
func TestPlacesOfAMergedDomain(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, dir, "a.yaml", "domain: d\ndescriptors:\n- {key: a, descriptors: [{key: b, value: x, rate_limit: {requests: 1, period: 1s}}]}\n")
	filetest.Write(t, dir, "b.yaml", "domain: d\ndescriptors:\n- {key: c, descriptors: [{key: b, value: x, rate_limit: {requests: 1, period: 1s}}]}\n")
	r, err := limitsfile.Options{MergeDomains: true}.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"a.yaml": "a=1,b=x", "b.yaml": "c=1,b=x"} {
		if s := trace.Of(r.Domain("d"), limitstest.Entries(text), trace.MaxLooks); !strings.HasSuffix(s.Reached.File, file) {
			t.Errorf("%s is said to lead to %+v", text, s.Reached)
		}
	}
}

// A search finds the rule that Match finds, and the same each time.
func TestSearchFindsWhatMatchFinds(t *testing.T) {
	for seed := range soaktest.Long[uint64](100, 3000) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		text := "domain: d\ndescriptors:\n"
		if level := limitstest.RandomLevel(rnd, 3, 20); len(level) > 0 {
			text += levelText(level, "")
		} else {
			continue
		}
		r, err := limitstest.Load(t, text)
		if err != nil {
			continue // what it says is tested elsewhere
		}
		for range 50 {
			descriptors := make([][]bucket.Entry, 1+rnd.IntN(3))
			for i := range descriptors {
				for range rnd.IntN(4) {
					descriptors[i] = append(descriptors[i], bucket.Entry{Key: "k" + limitstest.RandomText(rnd, "ab_", 1), Value: limitstest.RandomText(rnd, "abAB_/ ", 5)})
				}
			}
			for _, entries := range descriptors {
				looks := rnd.IntN(100)
				s, again := trace.Of(r.Domain("d"), entries, looks), trace.Of(r.Domain("d"), entries, looks)
				if want := r.Domain("d").Match(entries); s.Rule != want || (s.Why() == "") != (want != nil) {
					t.Fatalf("seed %d: %v has the rule %v, want %v: %s\n%s", seed, entries, s.Rule, want, s.Why(), text)
				}
				if show(s) != show(again) {
					t.Fatalf("seed %d: a second search for %v differs", seed, entries)
				}
			}
		}
	}
}

// levelText returns a level as it stands in a file.
func levelText(level []*limitstest.Branch, indent string) string {
	var s strings.Builder
	for _, r := range level {
		fmt.Fprintf(&s, "%s- key: %q\n", indent, r.Key)
		if r.Value != "" {
			fmt.Fprintf(&s, "%s  value: %q\n", indent, r.Value)
		}
		if r.Limited {
			fmt.Fprintf(&s, "%s  rate_limit: {requests: 1, period: 1s}\n", indent)
		}
		if len(r.Below) > 0 {
			fmt.Fprintf(&s, "%s  descriptors:\n%s", indent, levelText(r.Below, indent+"  "))
		}
	}
	return s.String()
}
