package config_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config"
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
			l := config.LoadOptions{Clock: func() int64 { return now }}.NewLive(dir, nil)
			for i, text := range c.texts {
				now = int64(i)
				filetest.Write(t, dir, "a.yaml", text)
				if err := l.Reload(); err != nil {
					t.Fatal(err)
				}
			}
			if got := l.Rules().Domain("d").Match(entries(c.entries)).Since; got != c.want {
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
	l := config.LoadOptions{Clock: func() int64 { return now }}.NewLive(dir, nil)
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
