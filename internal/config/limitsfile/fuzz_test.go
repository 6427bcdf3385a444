package limitsfile_test

import (
	"encoding/json"
	"os"
	"testing"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// FuzzLimitsFile loads anything. Whatever loads can be walked, matched and
// shown, the same each time; whatever does not says where and why.
func FuzzLimitsFile(f *testing.F) {
	f.Add([]byte(limitstest.Example))
	for _, c := range badFiles {
		f.Add([]byte(c.text))
	}
	f.Add([]byte("domain: d\ndescriptors:\n- &a {key: k, value: a, rate_limit: &b {unit: day}}\n- {<<: [*a], value: 'x*', rate_limits: [{<<: *b, name: n}]}\n"))
	f.Add([]byte("domain: d\ndescriptors:\n- {key: k, on_store_failure: local, rate_limit: {requests: 1, period: 1s}}\n- {key: l, on_store_failure: allow, rate_limits: [{name: n, unit: day}]}\n"))
	f.Add([]byte("domain: d\ndescriptors:\n- {key: k, value: 'a*', shadow_mode: yes, share_threshold: true, metadata: {a: [1, .5, {b: ~}]}, rate_limit: {unlimited: true, name: n, replaces: [{name: m}]}}\n- {key: k, quota_mode: on, detailed_metric: true, rate_limits: [{name: m, unit: day, replaces: [{name: o}]}]}\n"))
	f.Add([]byte("unit: x\ndomain: d\ndomain: e\ndescriptors:\n- {key: 'k*', value_to_metric: true, rate_limit: {unit: day}, rate_limit: {name: !t n}}\n---\n"))
	path := filetest.Write(f, f.TempDir(), "limits.yaml", "")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := limitsfile.Load(path)
		loose, looseErr := limitsfile.Options{Lenient: true, MergeDomains: true}.Load(path)
		if err != nil {
			checkErrors(t, err)
			if looseErr != nil {
				checkErrors(t, looseErr)
			} else if len(loose.Warnings()) == 0 {
				t.Errorf("accepted without a warning, but strictly: %v", err)
			}
			return
		}
		if looseErr != nil || loose.Fingerprint() != r.Fingerprint() || len(loose.Warnings()) != len(r.Warnings()) {
			t.Errorf("if lenient: %v", looseErr)
		}
		first := table(t, r)
		if !utf8.ValidString(first) {
			t.Errorf("table is not UTF-8: %q", first)
		}
		for _, d := range r.Domains() {
			if r.Domain(d.Name) != d {
				t.Errorf("domain %q is not found", d.Name)
			}
			if !utf8.ValidString(d.Name) {
				t.Errorf("domain is not UTF-8: %q", d.Name)
			}
			d.Place(nil)
			paths := make(map[string]bool)
			for _, rule := range d.Rules() {
				if rule.Path() == "" || rule.Line < 1 || rule.Unlimited == (len(rule.Limits) > 0) {
					t.Errorf("rule %+v", rule)
				}
				if rule.ShadowMode && rule.QuotaMode || rule.Shared != nil && len(rule.Shared) != len(rule.Entries()) || rule.Replaces != nil && len(rule.Replaces) != max(1, len(rule.Limits)) {
					t.Errorf("flags of rule %+v", rule)
				}
				if _, err := json.Marshal(rule.Metadata); err != nil {
					t.Errorf("metadata: %v", err)
				}
				if paths[rule.Path()] {
					t.Errorf("two rules of domain %q have the path %s", d.Name, rule.Path())
				}
				paths[rule.Path()] = true
			}
			for _, es := range [][]bucket.Entry{nil, {{}}, {{Key: "k"}}, {{Key: "user", Value: "alice"}}, {{Key: "tenant", Value: "t"}, {Key: "user", Value: "bot-1"}}} {
				if rule := d.Match(es); rule != nil {
					_ = rule.Path()
				}
			}
		}
		for _, w := range r.Warnings() {
			if w.Line < 1 || w.Text == "" {
				t.Errorf("warning %+v", w)
			}
		}
		again, err := limitsfile.Load(path)
		if err != nil {
			t.Fatalf("loaded once, but then: %v", err)
		}
		if second := table(t, again); second != first {
			t.Errorf("two tables:\n%s\n%s", first, second)
		}
		if r.Fingerprint() == "" || r.Fingerprint() != again.Fingerprint() {
			t.Errorf("two fingerprints: %q and %q", r.Fingerprint(), again.Fingerprint())
		}
	})
}

func checkErrors(t *testing.T, err error) {
	t.Helper()
	errs, ok := err.(yamlfile.Errors)
	if !ok || len(errs) == 0 {
		t.Fatalf("error %T: %v", err, err)
	}
	for i, e := range errs {
		if e.Line < 1 || e.Column < 1 || e.Found == "" {
			t.Errorf("error without a place: %+v", e)
		}
		if i > 0 && e.Line < errs[i-1].Line {
			t.Errorf("errors out of order: %v", err)
		}
	}
}
