package limitsfile_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

var lenient = limitsfile.Options{Lenient: true}

// loadLenient loads a file leniently and returns its warnings too.
func loadLenient(t *testing.T, text string) (r *rules.Set, warnings string, err error) {
	t.Helper()
	path := filetest.Write(t, t.TempDir(), "limits.yaml", text)
	r, err = lenient.Load(path)
	if err != nil {
		return nil, "", err
	}
	var lines []string
	for _, w := range r.Warnings() {
		lines = append(lines, strings.TrimPrefix(w.String(), path+":"))
	}
	return r, strings.Join(lines, "\n"), nil
}

// Each text is an error if strict. If lenient it is a warning, and means the same as
// the plain text.
func TestLenientWarnsOfWhatEnvoyAccepts(t *testing.T) {
	const day5 = "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 5}\n"
	for _, c := range []struct{ name, text, same, warning string }{
		{"a key of another level", "unit: day\n" + day5, day5, "1:1: found unit in a domain, but it belongs in a rate_limit; it is ignored"},
		{"a second domain", "domain: e\n" + day5, day5, "2:1: domain: found a second domain, the first is on line 1; the last one counts"},
		{"second descriptors", "descriptors: [{key: x}]\n" + day5, day5, "3:1: descriptors: found a second descriptors, the first is on line 1; the last one counts"},
		{"a second value without one", limitstest.Descriptor("value: x\n  value:\n  rate_limit: {unit: day, requests_per_unit: 5}"), day5, "5:3: descriptors[0].value: found a second value, the first is on line 4; the last one counts"},
		{"a second document", day5 + "---\nfoo: bar\n", day5, "5:1: found more after the first document; it is ignored"},
		{"a bad second document", "{domain: d, descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 5}}]}\n}\n", day5, "2:1: found more after the first document; it is ignored"},
		{"flags without a limit", limitstest.Descriptor("value: 'a*'\n  shadow_mode: true\n  share_threshold: true\n  metadata: {a: 1}"), limitstest.Descriptor("value: 'a*'"),
			"5:3: descriptors[0].shadow_mode: found shadow_mode without a limit; it is ignored\n6:3: descriptors[0].share_threshold: found share_threshold without a limit; it is ignored\n7:3: descriptors[0].metadata: found metadata without a limit; it is ignored"},
		{"shadow_mode beside quota_mode", day5 + "  shadow_mode: true\n  quota_mode: true\n", day5 + "  shadow_mode: true\n", "6:3: descriptors[0].quota_mode: found shadow_mode beside quota_mode; quota_mode is ignored"},
		{"unlimited with a number", limit("unlimited: true, requests_per_unit: 5"), limit("unlimited: true"), "4:33: descriptors[0].rate_limit.requests_per_unit: found requests_per_unit beside unlimited; it is ignored"},
		{"metadata twice", day5 + "  metadata: {a: 1, b: 2, a: 3}\n", day5 + "  metadata: {a: 3, b: 2}\n", `5:26: descriptors[0].metadata.a: found a second "a"; the last one counts`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := limitstest.Load(t, c.text); err == nil {
				t.Errorf("%s: no error if strict", c.name)
			}
			r, warnings, err := loadLenient(t, c.text)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				return
			}
			if warnings != c.warning {
				t.Errorf("%s: warnings:\n%s\nwant:\n%s", c.name, warnings, c.warning)
			}
			if r.Fingerprint() != limitstest.Fingerprint(t, c.same) {
				t.Errorf("%s: means\n%s", c.name, table(t, r))
			}
		})
	}
}

func TestLenientKeepsOddNames(t *testing.T) {
	r, warnings, err := loadLenient(t, "domain: d\ndescriptors:\n- key: k*\n  rate_limit: {unit: day, name: "+strings.Repeat("n", 65)+"}\n- {key: \"l\\n\", rate_limit: {unit: day}}\n")
	if err != nil || strings.Count(warnings, "\n") != 2 || !strings.Contains(warnings, "its * stands for itself") {
		t.Fatalf("%v, warnings:\n%s", err, warnings)
	}
	d := r.Domain("d")
	for key, want := range map[string]bool{"k*": true, "kx": false, "l\n": true} {
		if got := d.Match([]bucket.Entry{{Key: key, Value: "v"}}) != nil; got != want {
			t.Errorf("%q matches: %t", key, got)
		}
	}
	if n := len(d.Rules()[0].Limits[0].Name); n != 65 {
		t.Errorf("the name has %d bytes", n)
	}
}

// Mistakes that envoyproxy/ratelimit refuses too, keys that only ratelimitd has, and
// bounds are the same errors if lenient.
func TestLenientRefusesWhatEnvoyRefuses(t *testing.T) {
	accepted := map[string]bool{
		"two documents": true, "trailing bytes": true,
		"key of another level": true, "duplicate key": true, "long domain": true, "domain with a control character": true,
		"star in a key": true, "name": true, "unlimited with numbers": true, "flags without a limit": true,
		"shadow_mode beside quota_mode": true,
	}
	names := make(map[string]bool)
	for _, c := range badFiles {
		names[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			_, strict := limitstest.Load(t, c.text)
			_, _, err := loadLenient(t, c.text)
			switch {
			case accepted[c.name] && err != nil:
				t.Errorf("%s: %v", c.name, err)
			case !accepted[c.name] && err == nil:
				t.Errorf("%s: no error if lenient, but %v", c.name, strict)
			}
		})
	}
	for name := range accepted {
		if !names[name] {
			t.Errorf("no file is called %s", name)
		}
	}
	for name, text := range map[string]string{
		"our key twice":                     "domain: d\nalgorithm: gcra\nalgorithm: gcra\n",
		"share_threshold without a pattern": limitstest.Descriptor("share_threshold: true"),
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := loadLenient(t, text); err == nil {
				t.Errorf("%s: no error", name)
			}
		})
	}
}

// envoyproxy/ratelimit's reader takes them too.
func TestBooleansMayBeTheWordsOfYAML11(t *testing.T) {
	for value, words := range map[bool]string{
		true:  "true True TRUE y Y yes Yes YES on On ON",
		false: "false False FALSE n N no No NO off Off OFF",
	} {
		for _, word := range strings.Fields(words) {
			t.Run(word, func(t *testing.T) {
				d := limitstest.Domain(t, limitstest.Descriptor("rate_limit: {unit: day}\n  shadow_mode: "+word))
				if got := d.Match(limitstest.Entries("k=v")).ShadowMode; got != value {
					t.Errorf("%s is %t", word, got)
				}
			})
		}
	}
}

// Envoy Gateway sends one key and value twice, for an exact and a distinct limit.
func TestTwoDescriptorsOfOneEntryAreAddedTogetherIfOneHasTheLimit(t *testing.T) {
	const (
		head    = "domain: d\ndescriptors:\n"
		limited = "- {key: a, value: %s, rate_limit: {requests_per_unit: 1, unit: hour}}\n"
		parent  = "- {key: a, value: %s, descriptors: [{key: b, rate_limit: {requests_per_unit: 2, unit: hour}}]}\n"
		both    = "- {key: a, value: %s, rate_limit: {requests_per_unit: 1, unit: hour}, descriptors: [{key: b}]}\n"
	)
	for _, c := range []struct {
		name, text string
		good       bool
	}{
		{"the limit first", limited + parent, true},
		{"the limit last", parent + limited, true},
		{"two limits", limited + limited, false},
		{"two lists", parent + parent, false},
		{"a list and a limit with a list", parent + both, false},
		{"a third", limited + parent + parent, false},
	} {
		for _, value := range []string{"v", "v*", `""`} {
			t.Run(c.name+" of "+value, func(t *testing.T) {
				path := filetest.Write(t, t.TempDir(), "l.yaml", head+strings.ReplaceAll(c.text, "%s", value))
				rules, err := limitsfile.Options{Lenient: true}.Load(path)
				if (err == nil) != c.good {
					t.Fatalf("error %v", err)
				}
				if _, err := limitsfile.Load(path); err == nil {
					t.Error("no error, and it is read strictly")
				}
				if !c.good {
					return
				}
				a := bucket.Entry{Key: "a", Value: "v"}
				upper, lower := rules.Domain("d").Match([]bucket.Entry{a}), rules.Domain("d").Match([]bucket.Entry{a, {Key: "b", Value: "x"}})
				if upper == nil || upper.Limits[0].Requests != 1 || lower == nil || lower.Limits[0].Requests != 2 || !strings.HasPrefix(lower.Path(), upper.Path()+" / ") {
					t.Errorf("rules %v and %v", upper, lower)
				}
				if w := rules.Warnings(); len(w) != 1 || !strings.Contains(w[0].Text, "they are added together, since only one has a limit") {
					t.Errorf("warnings %v", w)
				}
			})
		}
	}
}
