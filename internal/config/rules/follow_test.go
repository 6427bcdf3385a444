package rules_test

import (
	"slices"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// The texts are loaded one after the other, a second apart.
func TestSinceIsWhenTheLimitsOfARuleChanged(t *testing.T) {
	t.Parallel()
	const (
		rule  = "domain: d\ndescriptors:\n- {key: a, rate_limit: {requests: 1, period: 1s}}\n"
		exact = rule + "- {key: a, value: x, rate_limit: {requests: 9, period: 1s}}\n"
		other = rule + "- {key: b, rate_limit: {requests: 9, period: 1s}}\n"
		star  = rule + "- {key: a, value: 'x*', rate_limit: {requests: 1, period: 1s}}\n"
		stars = rule + "- {key: a, value: 'y*', rate_limit: {requests: 9, period: 1s}}\n- {key: a, value: 'x*', rate_limit: {requests: 1, period: 1s}}\n"
		below = "domain: d\ndescriptors:\n- {key: a, value: x, rate_limit: {requests: 1, period: 1s}, descriptors: [{key: b, rate_limit: {requests: 1, period: 1s}}]}\n"
	)
	cidr := func(fields string) string {
		return rule + "- {key: a, " + fields + ", rate_limit: {requests: 1, period: 1s}}\n"
	}
	numbers := func(limit string) string { return "domain: d\ndescriptors:\n- {key: a, rate_limit: {" + limit + "}}\n" }
	for _, c := range []struct {
		name    string
		entries string
		texts   []string
		want    int64 // the number of the text, from 0 on
	}{
		{"the first load", "a=x", []string{rule}, 0},
		{"another rule comes", "a=x", []string{rule, other}, 0},
		{"another rule goes", "a=x", []string{other, rule}, 0},
		{"a rule comes", "b=x", []string{rule, other}, 1},
		{"a rule comes back", "b=x", []string{other, rule, other}, 2},
		{"other numbers", "a=x", []string{rule, numbers("requests: 2, period: 1s")}, 1},
		{"another period", "a=x", []string{rule, numbers("requests: 1, period: 2s")}, 1},
		{"another burst", "a=x", []string{rule, numbers("requests: 1, period: 1s, burst: 2")}, 1},
		{"the same burst", "a=x", []string{rule, numbers("requests: 1, period: 1s, burst: 1")}, 0},
		{"another algorithm", "a=x", []string{rule, numbers("requests: 1, period: 1s, algorithm: gcra")}, 1},
		{"the same algorithm", "a=x", []string{rule, numbers("requests: 1, period: 1s, algorithm: token_bucket")}, 0},
		{"another name", "a=x", []string{rule, numbers("requests: 1, period: 1s, name: n")}, 1},
		{
			"other slots", "a=x",
			[]string{numbers("algorithm: sliding_window, requests: 1, period: 1s"), numbers("algorithm: sliding_window, requests: 1, period: 1s, sub_windows: 5")}, 1,
		},
		{"postpaid", "a=x", []string{rule, numbers("requests: 1, period: 1s, postpaid: true")}, 0},
		{"there and back", "a=x", []string{rule, numbers("requests: 2, period: 1s"), rule}, 2},
		{"the same prefixes", "a=10.0.0.1", []string{cidr("cidr: [10.0.0.0/8, 11.0.0.0/8]"), cidr("cidr: [10.0.0.0/8, 11.0.0.0/8], shadow_mode: false")}, 0},
		{"other prefixes", "a=10.0.0.1", []string{cidr("cidr: [10.0.0.0/8, 11.0.0.0/8]"), cidr("cidr: [10.0.0.0/8, 12.0.0.0/8]")}, 1},
		{"a prefix goes before others", "a=10.0.0.1", []string{cidr("cidr: [10.0.0.0/8]"), rule}, 1},
		{"a prefix comes before others", "a=1", []string{rule, cidr("cidr: [10.0.0.0/8]")}, 0},
		{"another network", "a=::1", []string{"domain: d\ndescriptors: [{key: a, network: {ipv6: 64}, rate_limit: {requests: 1, period: 1s}}]", rule}, 1},
		{"a value comes before others", "a=y", []string{rule, exact}, 0},
		{"a value falls to a key", "a=x", []string{rule, exact, rule}, 2},
		{"a value falls to a pattern", "a=x", []string{star, exact, star}, 2},
		{"a pattern falls to a key", "a=y", []string{rule, stars, rule}, 2},
		{"a pattern falls to a later one", "a=x", []string{stars, star}, 1},
		{"a pattern comes before others", "a=x", []string{star, stars}, 0},
		{"below a value that stays", "a=x,b=y", []string{below, below + "- {key: c, rate_limit: {requests: 1, period: 1s}}\n"}, 0},
		{"the domain comes back", "a=x", []string{rule, "domain: e\n", rule}, 2},
		{"the keys are placed by another entry", "a=x", []string{rule, "hash_tag: a\n" + rule}, 1},
		{
			"one counter for all", "a=x", []string{
				"domain: d\ndescriptors:\n- {key: a, value: 'x*', rate_limit: {requests: 1, period: 1s}}\n",
				"domain: d\ndescriptors:\n- {key: a, value: 'x*', share_threshold: true, rate_limit: {requests: 1, period: 1s}}\n",
			}, 1,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			now := int64(0)
			l := limitsfile.Options{Clock: func() int64 { return now }}.NewLive(dir, nil)
			for i, text := range c.texts {
				now = int64(i)
				filetest.Write(t, dir, "a.yaml", text)
				if err := l.Reload(); err != nil {
					t.Fatal(err)
				}
			}
			if got := l.Rules().Domain("d").Match(limitstest.Entries(c.entries)).Since; got != c.want {
				t.Errorf("since text %d, want %d", got, c.want)
			}
		})
	}
}

// A request may bring limits of its own, which have the algorithm of the domain.
func TestSinceOfADomainIsWhenItsAlgorithmChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := int64(0)
	l := limitsfile.Options{Clock: func() int64 { return now }}.NewLive(dir, nil)
	for i, c := range []struct {
		text string
		want int64
	}{
		{"domain: d\n", 0},
		{"domain: d\ndescriptors: [{key: a, rate_limit: {requests: 1, period: 1s}}]\n", 0},
		{"domain: d\nalgorithm: gcra\n", 2},
		{"domain: d\nalgorithm: gcra\nhash_tag: a\n", 3},
	} {
		now = int64(i)
		filetest.Write(t, dir, "a.yaml", c.text)
		if err := l.Reload(); err != nil {
			t.Fatal(err)
		}
		if got := l.Rules().Domain("d").Since; got != c.want {
			t.Errorf("text %d: since %d, want %d", i, got, c.want)
		}
	}
}

// countsOf returns the counts of the rules of domain d, by path.
func countsOf(t *testing.T, l *rules.Live) map[string]*tally.RuleCounts {
	t.Helper()
	found := make(map[string]*tally.RuleCounts)
	for _, r := range l.Rules().Domain("d").Rules() {
		if r.Counts == nil || found[r.Path()] != nil {
			t.Fatalf("%s: no counts, or a second rule of this path", r.Path())
		}
		found[r.Path()] = r.Counts
	}
	return found
}

// Two texts are loaded one after the other. The rules named keep their counts,
// and no others do.
func TestRulesKeepTheirCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, before, after string
		stay                []string
	}{
		{
			"new numbers, in another order",
			"domain: d\ndescriptors:\n- {key: a, value: x, rate_limit: {requests: 1, period: 1s}}\n- {key: a, rate_limit: {requests: 1, period: 1s}}\n",
			"domain: d\ndescriptors:\n- {key: a, rate_limit: {unlimited: true}}\n- {key: a, value: x, rate_limit: {requests: 2, period: 1s, algorithm: gcra}}\n",
			[]string{"a", "a=x"},
		},
		{
			"a rule goes, another comes",
			"domain: d\ndescriptors:\n- {key: a, rate_limit: {requests: 1, period: 1s}}\n- {key: b, rate_limit: {requests: 1, period: 1s}}\n",
			"domain: d\ndescriptors:\n- {key: a, rate_limit: {requests: 1, period: 1s}}\n- {key: c, rate_limit: {requests: 1, period: 1s}}\n",
			[]string{"a"},
		},
		{
			"a rule moves to another level",
			"domain: d\ndescriptors:\n- {key: a, descriptors: [{key: b, rate_limit: {requests: 1, period: 1s}}]}\n",
			"domain: d\ndescriptors:\n- {key: b, rate_limit: {requests: 1, period: 1s}}\n",
			nil,
		},
		{
			"a rule below one that says nothing, and then something",
			"domain: d\ndescriptors:\n- {key: a, value: x, descriptors: [{key: b, rate_limit: {requests: 1, period: 1s}}]}\n",
			"domain: d\ndescriptors:\n- {key: a, value: x, rate_limit: {requests: 1, period: 1s}, descriptors: [{key: b, rate_limit: {requests: 1, period: 1s}}]}\n",
			[]string{"a=x / b"},
		},
		{
			"among many patterns",
			"domain: d\ndescriptors: [" + limitstest.Many("{key: path, value: '/s%d/*', rate_limit: {requests: 1, period: 1s}}", 1, 19) + "]\n",
			"domain: d\ndescriptors: [" + limitstest.Many("{key: path, value: '/s%d/*', rate_limit: {requests: 1, period: 1s}}", 17, 40) + "]\n",
			[]string{"path=/s17/*", "path=/s18/*", "path=/s19/*"},
		},
		{
			"among many keys",
			"domain: d\ndescriptors: [" + limitstest.Many("{key: k%d, rate_limit: {requests: 1, period: 1s}}", 1, 9) + "]\n",
			"domain: d\ndescriptors: [" + limitstest.Many("{key: k%d, rate_limit: {requests: 1, period: 1s}}", 8, 12) + "]\n",
			[]string{"k8", "k9"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l := limitsfile.NewLive(dir, nil)
			loaded := func(text string) map[string]*tally.RuleCounts {
				filetest.Write(t, dir, "a.yaml", text)
				if err := l.Reload(); err != nil {
					t.Fatal(err)
				}
				return countsOf(t, l)
			}
			before := loaded(c.before)
			var stayed []string
			for path, counts := range loaded(c.after) {
				if before[path] == counts {
					stayed = append(stayed, path)
				}
			}
			slices.Sort(stayed)
			if !slices.Equal(stayed, c.stay) {
				t.Errorf("stayed: %q, want %q", stayed, c.stay)
			}
		})
	}
}

func TestHitsStayOverAReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := limitsfile.NewLive(dir, nil)
	reload := func(text string) {
		t.Helper()
		filetest.Write(t, dir, "a.yaml", text)
		if err := l.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	reload("domain: d\ndescriptors:\n- {key: a, rate_limit: {requests: 1, period: 1s}}\n- {key: b, rate_limit: {requests: 1, period: 1s}}\n")
	for path, c := range countsOf(t, l) {
		c.AddHits(tally.Hits{Within: uint64(len(path))})
	}
	reload("domain: d\ndescriptors:\n- {key: a, rate_limit: {requests: 2, period: 1m}}\n- {key: c, rate_limit: {requests: 1, period: 1s}}\n")
	counts := countsOf(t, l)
	if a, c := counts["a"].Hits(), counts["c"].Hits(); a.Within != 1 || c.Total() != 0 {
		t.Errorf("the rule that stays has %+v, the new one %+v", a, c)
	}
}
