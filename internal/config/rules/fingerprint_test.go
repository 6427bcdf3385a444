package rules_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// Daemons on other machines, and those of another version with the same rules, must
// have the same fingerprint.
func TestFingerprintStaysFromVersionToVersion(t *testing.T) {
	if got := limitstest.Fingerprint(t, limitstest.Example); got != "f747a93bf45e06d7" {
		t.Errorf("the example's fingerprint is %s", got)
	}
	r, err := limitsfile.Load(t.TempDir())
	if err != nil || !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(r.Fingerprint()) {
		t.Errorf("without rules: %q, error %v", r.Fingerprint(), err)
	}
}

func TestFingerprintsOfEqualRulesAreEqual(t *testing.T) {
	list := func(descriptors ...string) string {
		return "domain: d\ndescriptors:\n- " + strings.Join(descriptors, "\n- ") + "\n"
	}
	const one = "{key: a, value: x, rate_limit: {requests: 1, period: 1m}}"
	for name, texts := range map[string][2]string{
		"comments and style": {list(one), "# One.\ndescriptors:\n  - rate_limit:\n      period: 60s\n      requests: 0x1\n    value: \"x\"\n    key: a\ndomain: d\n"},
		"defaults":           {list(one), list("{key: a, value: x, rate_limit: {algorithm: token_bucket, requests: 1, period: 1m, burst: 1, postpaid: false, unlimited: false, name: ''}, descriptors: []}")},
		"order of replaces":  {list("{key: a, rate_limit: {unit: day, name: x, replaces: [{name: y}, {name: z}]}}"), list("{key: a, rate_limit: {unit: day, name: x, replaces: [{name: z}, {name: y}, {name: z}]}}")},
		"flags not set":      {list("{key: a, rate_limit: {unit: day}}"), list("{key: a, shadow_mode: false, quota_mode: no, share_threshold: false, detailed_metric: false, value_to_metric: , metadata: {}, rate_limit: {unit: day, replaces: []}}")},
		"metadata":           {list("{key: a, metadata: {b: 1, c: [x]}, rate_limit: {unit: day}}"), list("{key: a, rate_limit: {unit: day}, metadata: {c: ['x'], b: 0x1}}")},
		"calendars":          {list("{key: a, rate_limit: {requests: 5, calendar: week}}"), list("{key: a, rate_limit: {algorithm: fixed_window, requests: 5, calendar: week, starts: monday 00:00, time_zone: UTC}}")},
		"sub_windows":        {list("{key: a, rate_limit: {algorithm: sliding_window, requests: 1, period: 1m}}"), list("{key: a, rate_limit: {algorithm: sliding_window, requests: 1, period: 1m, sub_windows: 10}}")},
		"spelling":           {list("{key: a, rate_limit: {unit: day, requests_per_unit: 5}}"), list("{key: a, rate_limit: {algorithm: fixed_window, requests: 5, period: 24h, postpaid: auto}}")},
		"order of values":    {list(one, "{key: a, value: y}", "{key: b, value: x}"), list("{key: b, value: x}", "{key: a, value: y}", one)},
		"order of keys":      {list("{key: a}", "{key: b}", "{key: c, value: '*'}"), list("{key: c, value: '*'}", "{key: b}", "{key: a}")},
		"patterns of others": {list("{key: a, value: x*}", "{key: b, value: '*x'}", "{key: a, value: x}", "{key: a}"), list("{key: a}", "{key: b, value: '*x'}", "{key: a, value: x}", "{key: a, value: x*}")},
	} {
		t.Run(name, func(t *testing.T) {
			if a, b := limitstest.Fingerprint(t, texts[0]), limitstest.Fingerprint(t, texts[1]); a != b {
				t.Errorf("%s: %s and %s", name, a, b)
			}
		})
	}
}

func TestFingerprintIgnoresFiles(t *testing.T) {
	var first string
	for i, names := range [][]string{{"a.yaml", "b.yaml", "c.yaml"}, {"c.yml", "b/x.json", "a.yaml"}, {"3.yaml", "1.yaml", "2.yaml"}} {
		dir := t.TempDir()
		for j, name := range names {
			filetest.Write(t, dir, name, fmt.Sprintf(`{"domain": "d%d", "descriptors": [{"key": "k", "rate_limit": {"unit": "day"}}]}`, j))
		}
		r, err := limitsfile.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = r.Fingerprint()
		} else if r.Fingerprint() != first {
			t.Errorf("%v: %s, want %s", names, r.Fingerprint(), first)
		}
	}
}

func TestFingerprintsOfDifferentRulesDiffer(t *testing.T) {
	texts := []string{
		"domain: d",
		"domain: e",
		"domain: d\nhash_tag: k",
		"domain: d\nhash_tag: l",
		"domain: d\nalgorithm: gcra", // which limits of requests have
		"domain: d\nalgorithm: fixed_window",
	}
	for _, descriptors := range []string{
		// Without limits, but in the way of what is more general.
		"{key: k}", "{key: l}", "{key: k, value: x}", "{key: k, value: y}", "{key: k, value: x*}", "{key: kx}",
		"{key: k, value: xy}", "{key: kx, value: y}",
		"{key: k}, {key: k, value: x}", "{key: k, value: x}, {key: k, value: y}", "{key: k}, {key: k, value: x*}",
		// Patterns in order.
		"{key: k, value: x*}, {key: k, value: xy*}", "{key: k, value: xy*}, {key: k, value: x*}",
		// Nesting.
		"{key: k, descriptors: [{key: l}]}", "{key: k, descriptors: [{key: l}, {key: m}]}", "{key: k, descriptors: [{key: l, descriptors: [{key: m}]}]}",
		"{key: k, descriptors: [{key: l}]}, {key: m}", "{key: k}, {key: m, descriptors: [{key: l}]}", "{key: k}, {key: l}, {key: m}",
		"{key: k, value: x, descriptors: [{key: l, value: y}]}", "{key: l, value: y, descriptors: [{key: k, value: x}]}", "{key: k, value: x}, {key: l, value: y}",
		// Equal subtrees at several places.
		"{key: k, value: x, descriptors: [{key: m, value: z}]}, {key: l, value: y, descriptors: [{key: m, value: z}]}",
	} {
		texts = append(texts, "domain: d\ndescriptors: ["+descriptors+"]")
	}
	for _, rule := range []string{
		"rate_limit: {unlimited: true}", "rate_limit: {unlimited: true, name: n}",
		"rate_limit: {requests: 0, period: 1m}", "rate_limit: {requests: 1, period: 1m}",
		"rate_limits: [{name: a, requests: 1, period: 1m}, {name: b, requests: 2, period: 1h}]",
		"rate_limits: [{name: b, requests: 2, period: 1h}, {name: a, requests: 1, period: 1m}]",
		"rate_limits: [{name: a, requests: 1, period: 1h}, {name: b, requests: 2, period: 1m}]",
		"rate_limit: {unit: day}, shadow_mode: true", "rate_limit: {unit: day}, quota_mode: true",
		"rate_limit: {unit: day}, detailed_metric: true", "rate_limit: {unit: day}, value_to_metric: true", "rate_limit: {unit: day}, value_to_metric: true, detailed_metric: true",
		"rate_limit: {unit: day}, metadata: {a: 1}", "rate_limit: {unit: day}, metadata: {a: 1.5}", "rate_limit: {unit: day}, metadata: {a: '1'}", "rate_limit: {unit: day}, metadata: {a: true}",
		"rate_limit: {unit: day}, metadata: {a: null}", "rate_limit: {unit: day}, metadata: {a: [1]}", "rate_limit: {unit: day}, metadata: {a: {}}", "rate_limit: {unit: day}, metadata: {a: {b: 1}}", "rate_limit: {unit: day}, metadata: {a: 1, b: {}}",
		"rate_limit: {unit: day, replaces: [{name: x}]}", "rate_limit: {unit: day, replaces: [{name: y}]}", "rate_limit: {unit: day, replaces: [{name: x}, {name: y}]}", "rate_limit: {unlimited: true, replaces: [{name: x}]}",
		"rate_limits: [{name: a, unit: day, replaces: [{name: x}]}, {name: b, unit: day}]", "rate_limits: [{name: a, unit: day}, {name: b, unit: day, replaces: [{name: x}]}]",
		"rate_limit: {requests: 1, period: 1m}, descriptors: [{key: l}]", "descriptors: [{key: l, rate_limit: {requests: 1, period: 1m}}]",
	} {
		texts = append(texts, "domain: d\ndescriptors: [{key: k, "+rule+"}]", "domain: d\ndescriptors: [{key: k, value: z, "+rule+"}]")
	}
	seen := make(map[string]string)
	texts = append(texts, "domain: d\ndescriptors: [{key: k, value: 'z*', rate_limit: {unit: day}}]", "domain: d\ndescriptors: [{key: k, value: 'z*', rate_limit: {unit: day}, share_threshold: true}]")
	for _, flag := range []string{"shadow_mode: false", "share_threshold: true", "value_to_metric: true"} {
		texts = append(texts, "domain: d\ndescriptors: [{key: k, value: 'z*', "+flag+", descriptors: [{key: l, value: 'z*', rate_limit: {unit: day}}]}]")
	}
	for _, text := range texts {
		f := limitstest.Fingerprint(t, text)
		if other, ok := seen[f]; ok {
			t.Errorf("%s is the fingerprint of\n%s\nand of\n%s", f, other, text)
		}
		seen[f] = text
	}
}

// The test changes each field of a limit, and asks for a
// case here when there is a new one.
func TestFingerprintCoversEachFieldOfALimit(t *testing.T) {
	of := func(limit, beside string) string {
		return limitstest.Fingerprint(t, "domain: d\ndescriptors: [{key: k, rate_limit: {"+limit+"}"+beside+"}]")
	}
	const deny = ", on_store_failure: deny"
	others := map[string][]string{
		"Name":      {of("name: m, algorithm: gcra, requests: 5, period: 60s", deny), of("algorithm: gcra, requests: 5, period: 60s", deny)},
		"Algorithm": {of("name: n, algorithm: token_bucket, requests: 5, period: 60s", deny)},
		"Requests":  {of("name: n, algorithm: gcra, requests: 6, burst: 5, period: 60s", deny)},
		"Period":    {of("name: n, algorithm: gcra, requests: 5, period: 60001ms", deny)},
		"Burst":     {of("name: n, algorithm: gcra, requests: 5, burst: 6, period: 60s", deny)},
		"Postpaid":  {of("name: n, algorithm: gcra, requests: 5, period: 60s, postpaid: true", deny), of("name: n, algorithm: gcra, requests: 5, period: 60s, postpaid: auto", deny)},
		"BlockFor":  {of("name: n, algorithm: gcra, requests: 5, period: 60s, block_for: 60s", deny), of("name: n, algorithm: gcra, requests: 5, period: 60s, block_for: 61s", deny)},
		"OnStoreFailure": {of("name: n, algorithm: gcra, requests: 5, period: 60s", ""),
			of("name: n, algorithm: gcra, requests: 5, period: 60s", ", on_store_failure: error")},
		"Unenforced": {of("name: n, algorithm: gcra, requests: 5, period: 60s, enforce: 50%", deny), of("name: n, algorithm: gcra, requests: 5, period: 60s, enforce: 50%", "")},
		"Calendar": {of("requests: 5, calendar: day", ""), of("requests: 5, calendar: week", ""), of("requests: 5, calendar: day, starts: '06:00'", ""),
			of("requests: 5, calendar: day, time_zone: Europe/Berlin", ""), of("requests: 5, period: 1d, algorithm: fixed_window", "")},
		"Lease":      {of("name: n, algorithm: gcra, requests: 5, period: 60s, lease: 1s", deny), of("name: n, algorithm: gcra, requests: 5, period: 60s, lease: 1ms", deny)},
		"SubWindows": {of("algorithm: sliding_window, requests: 5, period: 60s, sub_windows: 9", "")},
	}
	seen := map[string]string{
		of("name: n, algorithm: gcra, requests: 5, period: 60s", deny): "the bucket",
		of("algorithm: sliding_window, requests: 5, period: 60s", ""):  "the window",
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[bucket.Spec]()) {
		if len(others[field.Name]) == 0 {
			t.Errorf("no case for %s", field.Name)
		}
		for _, f := range others[field.Name] {
			if seen[f] != "" {
				t.Errorf("another %s has the fingerprint of %s", field.Name, seen[f])
			}
			seen[f] = field.Name
		}
	}
}

// The test writes random trees twice, in another order of
// descriptors; patterns of one key keep theirs.
func TestFingerprintIgnoresTheOrderOfRules(t *testing.T) {
	for seed := range soaktest.Long[uint64](70, 2000) {
		r := rand.New(rand.NewPCG(seed, 3))
		tree := randomTree(r, 3)
		var a, b strings.Builder
		a.WriteString("domain: d\ndescriptors: ")
		b.WriteString(a.String())
		tree.write(&a, nil)
		tree.write(&b, r)
		if f, g := limitstest.Fingerprint(t, a.String()), limitstest.Fingerprint(t, b.String()); f != g {
			t.Fatalf("seed %d: %s and %s of\n%s\n%s", seed, f, g, a.String(), b.String())
		}
	}
}

// ruleTree is a list of descriptors.
type ruleTree []ruleBranch

type ruleBranch struct {
	text  string // all but what is below
	below ruleTree
}

func randomTree(r *rand.Rand, depth int) ruleTree {
	var tree ruleTree
	for key := range r.IntN(6) {
		// One pattern for each key at most, since the order of two counts.
		for _, value := range []string{"''", "x", "y", "'x*'"} {
			if r.IntN(2) == 0 {
				continue
			}
			text := fmt.Sprintf("key: k%d, value: %s", key, value)
			if r.IntN(2) == 0 {
				text += fmt.Sprintf(", rate_limit: {requests: %d, period: 1s}", r.IntN(3))
			}
			var below ruleTree
			if depth > 1 && r.IntN(2) == 0 {
				below = randomTree(r, depth-1)
			}
			tree = append(tree, ruleBranch{text, below})
		}
	}
	return tree
}

// write writes the tree in the order that r gives, or as it is.
func (tree ruleTree) write(s *strings.Builder, r *rand.Rand) {
	order := make([]int, len(tree))
	for i := range order {
		order[i] = i
	}
	if r != nil {
		r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	s.WriteString("[")
	for n, i := range order {
		if n > 0 {
			s.WriteString(", ")
		}
		s.WriteString("{" + tree[i].text + ", descriptors: ")
		tree[i].below.write(s, r)
		s.WriteString("}")
	}
	s.WriteString("]")
}
