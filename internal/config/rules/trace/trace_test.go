package trace_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/racetest"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// show returns the levels of a trace as text: a line for each entry and, below it,
// one for each candidate.
func show(tr trace.Search) string {
	var s strings.Builder
	for _, l := range tr.Levels {
		fmt.Fprintf(&s, "%s=%s\n", l.Entry.Key, l.Entry.Value)
		for _, c := range l.Candidates {
			mark := c.WhyNot
			if c.Matched {
				mark = "matched" + mark
			}
			fmt.Fprintf(&s, "  %d %s: %s\n", c.Line, c.Entry, mark)
		}
		if l.NotShown > 0 {
			fmt.Fprintf(&s, "  and %d more\n", l.NotShown)
		}
	}
	return s.String()
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
  value: go*
  rate_limit: {requests: 1, period: 1s}
- key: plan
  descriptors:
  - key: user
    descriptors:
    - key: route
      rate_limit: {requests: 1, period: 1s}
- key: region
  value: eu
  rate_limit: {requests: 1, period: 1s}
- key: nothing
`

func TestTraceTellsHowTheSearchWent(t *testing.T) {
	r, err := limitstest.Load(t, traced)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, entries, want string }{
		{"an exact value", "plan=gold", `
plan=gold
  3 plan=gold: matched
  6 plan="silver ": another value
  9 plan=g*: an exact value goes before
  12 plan=go*: an exact value goes before
  15 plan: an exact value goes before
  and 2 more
`},
		{"a pattern", "plan=golf", `
plan=golf
  3 plan=gold: another value; it differs by one letter
  6 plan="silver ": another value
  9 plan=g*: matched
  12 plan=go*: an earlier pattern goes before
  15 plan: a pattern goes before
  and 2 more
`},
		{"the bare key, too early", "plan=silver", `
plan=silver
  6 plan="silver ": another value; it differs in white space around it
  3 plan=gold: another value
  9 plan=g*: the pattern does not match
  12 plan=go*: the pattern does not match
  15 plan: the descriptor ends here, but the limit stands 2 levels below
  and 2 more
`},
		{"one level too early", "plan=x,user=1", `
plan=x
  3 plan=gold: another value
  6 plan="silver ": another value
  9 plan=g*: the pattern does not match
  12 plan=go*: the pattern does not match
  15 plan: matched
  and 2 more
user=1
  17 user: the descriptor ends here, but the limit stands one level below
`},
		{"to the end", "plan=x,user=1,route=/", `
plan=x
  3 plan=gold: another value
  6 plan="silver ": another value
  9 plan=g*: the pattern does not match
  12 plan=go*: the pattern does not match
  15 plan: matched
  and 2 more
user=1
  17 user: matched
route=/
  19 route: matched
`},
		{"too long", "plan=gold,user=1", `
plan=gold
  3 plan=gold: it matches, but there are no descriptors below it
  6 plan="silver ": another value
  9 plan=g*: an exact value goes before
  12 plan=go*: an exact value goes before
  15 plan: an exact value goes before
  and 2 more
`},
		{"no limit", "nothing=1", `
nothing=1
  24 nothing: it matches, but has no limit
  and 6 more
`},
		{"another value", "region=us", `
region=us
  21 region=eu: another value
  and 6 more
`},
		{"another key", "rejion=eu", `
rejion=eu
  21 region=eu: another key
  3 plan=gold: another key
  24 nothing: another key
  and 4 more
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			es := limitstest.Entries(tc.entries)
			tr := trace.Of(r, "d", [][]bucket.Entry{es})[0]
			if got := show(tr); got != strings.TrimPrefix(tc.want, "\n") {
				t.Errorf("got\n%s\nwant%s", got, tc.want)
			}
			if tr.Rule != r.Domain("d").Match(es) {
				t.Errorf("the rule %v is not that of Match", tr.Rule)
			}
		})
	}
}

// Of merged domains each descriptor has the file in which it stands.
func TestTraceNamesTheFilesOfAMergedDomain(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, dir, "a.yaml", "domain: d\ndescriptors:\n- {key: a, descriptors: [{key: b, value: x, rate_limit: {requests: 1, period: 1s}}]}\n")
	filetest.Write(t, dir, "b.yaml", "domain: d\ndescriptors:\n- {key: c, descriptors: [{key: b, value: x, rate_limit: {requests: 1, period: 1s}}]}\n")
	r, err := limitsfile.Options{MergeDomains: true}.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"a.yaml": "a=1,b=x", "b.yaml": "c=1,b=x"} {
		for _, l := range trace.Of(r, "d", [][]bucket.Entry{limitstest.Entries(text)})[0].Levels {
			for _, c := range l.Candidates {
				if c.Matched && !strings.HasSuffix(c.File, file) {
					t.Errorf("%s of %s is said to stand in %s", c.Entry, text, c.File)
				}
			}
		}
	}
}

func TestHintsNameWhatWasMeant(t *testing.T) {
	const one = "{requests: 1, period: 1s}"
	// %s stands for the file.
	for _, tc := range []struct{ name, file, domain, asked, want string }{
		{"a misspelt domain", "- {key: k, rate_limit: " + one + "}", "dd", "k=1",
			`no limits have the domain "dd", so nothing is limited; did you mean "d" (%s:1)?`},
		{"a domain in other case", "- {key: k, rate_limit: " + one + "}", "D", "k=1",
			`no limits have the domain "D", so nothing is limited; "d" (%s:1) differs from it in case alone`},
		{"an unknown domain", "- {key: k, rate_limit: " + one + "}", "elsewhere", "k=1",
			`no limits have the domain "elsewhere", so nothing is limited`},
		{"a domain without rules", "  []", "d", "k=1", `the domain "d" has no rules`},

		{"case", "- {key: plan, value: silver, rate_limit: " + one + "}", "d", "plan=Silver",
			`plan=Silver matches nothing: did you mean plan=silver (%s:3), which differs in case alone?`},
		{"white space", "- {key: plan, value: 'silver ', rate_limit: " + one + "}", "d", "plan=silver",
			`plan=silver matches nothing: did you mean 'plan=silver ' (%s:3), which differs in white space around it?`},
		{"a slash", "- {key: path, value: /api/, rate_limit: " + one + "}", "d", "path=/api",
			`path=/api matches nothing: did you mean path=/api/ (%s:3), which differs by a slash at the end?`},
		{"quotes", `- {key: plan, value: '"silver"', rate_limit: ` + one + "}", "d", "plan=silver",
			`plan=silver matches nothing: did you mean 'plan="silver"' (%s:3), which differs by quotes around it?`},
		{"a letter", "- {key: plan, value: silver, rate_limit: " + one + "}", "d", "plan=sliver",
			`plan=sliver matches nothing: did you mean plan=silver (%s:3), which differs by one letter?`},
		{"a digit is another name", "- {key: user, value: user1, rate_limit: " + one + "}", "d", "user=user2", ``},

		{"case, beside a bare key", "- {key: user, value: alice, rate_limit: " + one + "}\n- {key: user, rate_limit: " + one + "}", "d", "user=Alice",
			`user=Alice matches user (%s:4) and not user=alice (%[1]s:3), from which it differs in case alone`},
		{"a letter, beside a bare key", "- {key: user, value: alice, rate_limit: " + one + "}\n- {key: user, rate_limit: " + one + "}", "d", "user=alica", ``},

		{"a misspelt key", "- {key: plan, rate_limit: " + one + "}", "d", "paln=silver",
			`no descriptor here has the key paln; plan (%s:3) differs from it by one letter`},
		{"a key that is longer", "- {key: tenant_id, rate_limit: " + one + "}", "d", "tenantid=1",
			`no descriptor here has the key tenantid; did you mean tenant_id (%s:3)?`},
		{"a key of the level below", "- {key: tenant, descriptors: [{key: user, rate_limit: " + one + "}]}", "d", "user=1",
			`no descriptor here has the key user, but one below tenant has (%s:3): the descriptor would have to name that before it`},

		{"another order", "- {key: tenant, descriptors: [{key: user, rate_limit: " + one + "}]}", "d", "user=1,tenant=a",
			`the entries match in another order, as tenant=a,user=1 (%s:3): their order has to be that of the rule` + "\n" +
				`no descriptor here has the key user, but one below tenant has (%[1]s:3): the descriptor would have to name that before it`},
		{"the beginning of a rule", "- {key: tenant, descriptors: [{key: user, rate_limit: " + one + "}, {key: path, rate_limit: " + one + "}]}", "d", "tenant=a",
			`tenant=a is only the beginning of a rule, and has no limit itself (%s:3): the rule goes on with the key path or user`},
		{"beyond a rule", "- {key: tenant, rate_limit: " + one + "}", "d", "tenant=a,user=1",
			`tenant=a has a limit (%s:3), but the descriptor goes on with user=1, and a rule is only for descriptors of its own length; send tenant=a as a descriptor of its own`},
		{"a pattern without a star", "- {key: path, value: /api/, rate_limit: " + one + "}", "d", "path=/api/users",
			`path=/api/users begins with path=/api/ (%s:3), which matches that very value alone: to match what begins with it, its value needs a * at the end`},
		{"a regular expression", "- {key: path, value: ^/api/.*, rate_limit: " + one + "}", "d", "path=/api/users",
			`path=/api/users does not match 'path=^/api/.*' (%s:3), which is no regular expression: * alone stands for other characters; did you mean /api/*?`},
		{"shadow mode", "- {key: k, shadow_mode: true, rate_limit: " + one + "}", "d", "k=1",
			`the rule has shadow_mode, so it never denies`},
		{"an empty value", "- {key: user, rate_limit: " + one + "}", "d", "user=",
			`the value of user is empty, as where a header is missing, so all who send none share a limit`},
		{"an empty value beside exact ones", "- {key: user, value: alice, rate_limit: " + one + "}", "d", "user=",
			`the value of user is empty, as where a header is missing, which no exact value and no pattern with text matches`},
		{"no entries", "- {key: user, rate_limit: " + one + "}", "d", "",
			`the descriptor has no entries, so no rule can match it`},

		{"one descriptor was meant", "- {key: tenant, descriptors: [{key: user, rate_limit: " + one + "}]}", "d", "tenant=a;user=1",
			`tenant=a is only the beginning of a rule, and has no limit itself (%s:3): the rule goes on with the key user` + "\n" +
				`one descriptor with the entries of descriptors 0 and 1 would match tenant / user (%[1]s:3): several descriptors are looked for one by one`},
		{"several descriptors were meant", "- {key: tenant, rate_limit: " + one + "}\n- {key: user, rate_limit: " + one + "}", "d", "tenant=a,user=1",
			`tenant=a has a limit (%s:3), but the descriptor goes on with user=1, and a rule is only for descriptors of its own length; send tenant=a as a descriptor of its own` + "\n" +
				`each entry has a rule by itself, tenant, user: to ask for all of them, send a descriptor for each`},

		{"nothing to say", "- {key: user, rate_limit: " + one + "}", "d", "user=1", ``},
		{"no name of a customer without a likeness", "- {key: user, value: alice, rate_limit: " + one + "}", "d", "user=bob", ``},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filetest.Write(t, t.TempDir(), "limits.yaml", "domain: d\ndescriptors:\n"+tc.file+"\n")
			r, err := limitsfile.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			var descriptors [][]bucket.Entry
			for _, text := range strings.Split(tc.asked, ";") {
				descriptors = append(descriptors, limitstest.Entries(text))
			}
			want := tc.want
			if strings.Contains(want, "%") {
				want = fmt.Sprintf(want, path)
			}
			if got := strings.Join(trace.Of(r, tc.domain, descriptors)[0].Hints, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// Hints spell entries of files so that a shell reads them as they are.
func TestHintsCanBePasted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ key, value, asked, want string }{
		{"a b", "x,y-name", "a b=X\\,Y-NAME", `did you mean 'a b=x\,y-name' (`},
		{"path", "$HOME/x", "path=$home/x", `did you mean 'path=$HOME/x' (`},
		{"user", "it's me", "user=It's me", `did you mean 'user=it'\''s me' (`},
		{"user", "tab\there", "user=TAB\there", `did you mean 'user=tab\u{9}here' (`},
		{"user", strings.Repeat("long", 50), "user=" + strings.Repeat("LONG", 50), `did you mean user=` + strings.Repeat("long", 50) + ` (`},
		{"c,ddd", "v", "c\\,dd=v", `; 'c\,ddd' (`},
	} {
		r, err := limitstest.Load(t, fmt.Sprintf("domain: d\ndescriptors:\n- {key: %q, value: %q, rate_limit: {requests: 1, period: 1s}}\n", tc.key, tc.value))
		if err != nil {
			t.Fatal(err)
		}
		asked, err := spelling.ParseEntries(tc.asked)
		if err != nil {
			t.Fatal(err)
		}
		if hints := trace.Of(r, "d", [][]bucket.Entry{asked})[0].Hints; len(hints) != 1 || !strings.Contains(hints[0], tc.want) {
			t.Errorf("of %s the hints are %q, want %s", tc.asked, hints, tc.want)
		}
	}
}

// A trace finds the rule that Match finds, the same each time, and within bounds.
func TestTraceFindsWhatMatchFinds(t *testing.T) {
	for seed := range uint64(racetest.Fewer(300)) {
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
			first, again := trace.Of(r, "d", descriptors), trace.Of(r, "d", descriptors)
			for i, tr := range first {
				if want := r.Domain("d").Match(descriptors[i]); tr.Rule != want {
					t.Fatalf("seed %d: %v has the rule %v, want %v\n%s", seed, descriptors[i], tr.Rule, want, text)
				}
				if show(tr) != show(again[i]) || strings.Join(tr.Hints, "\n") != strings.Join(again[i].Hints, "\n") {
					t.Fatalf("seed %d: a second trace of %v differs", seed, descriptors[i])
				}
				for _, l := range tr.Levels {
					if len(l.Candidates) > 10 || l.NotShown < 0 {
						t.Fatalf("seed %d: %d candidates, %d not shown", seed, len(l.Candidates), l.NotShown)
					}
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
