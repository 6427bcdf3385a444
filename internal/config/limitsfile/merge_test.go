package limitsfile_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

var merging = limitsfile.Options{MergeDomains: true}

func TestFilesOfOneDomainAreMerged(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, dir, "1.yaml", `domain: d
algorithm: gcra
hash_tag: tenant
descriptors:
- {key: a, value: x, rate_limit: {name: one, requests: 1, period: 1s, replaces: [{name: three}]}}
- {key: p, value: "/a*", rate_limit: {requests: 2, period: 1s}}
`)
	filetest.Write(t, dir, "2.yaml", `domain: d
descriptors:
- {key: p, value: "*b", rate_limit: {requests: 3, period: 1s}}
- {key: p, value: "/ab*", rate_limit: {name: three, requests: 4, period: 1s}}
- {key: a, rate_limit: {requests: 5, period: 1s}}
- {key: tenant, descriptors: [{key: a, value: x, rate_limit: {requests: 6, period: 1s}}]}
`)
	filetest.Write(t, dir, "3.yaml", "domain: e\ndescriptors: [{key: a, rate_limit: {unit: day}}]\n")
	if _, err := limitsfile.Load(dir); err == nil || !strings.Contains(err.Error(), `the domain "d" again, which is also in `+filepath.Join(dir, "1.yaml")+":1; allowed: each domain in one file, unless limits.merge_domains is true") {
		t.Errorf("not merged: %v", err)
	}
	r, err := merging.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	d := r.Domain("d")
	if len(r.Domains()) != 2 || d.HashTag != "tenant" || d.Algorithm != bucket.GCRA || len(d.Rules()) != 6 {
		t.Errorf("%d domains, %+v", len(r.Domains()), d)
	}
	for es, want := range map[string]string{
		"a=x": "gcra 1", "a=y": "token_bucket 5", "p=/ab": "gcra 2", "p=b": "token_bucket 3", "tenant=t,a=x": "token_bucket 6", "p=c": "",
	} {
		t.Run(es, func(t *testing.T) {
			got := ""
			if rule := d.Match(limitstest.Entries(es)); rule != nil {
				got = fmt.Sprintf("%s %d", rule.Limits[0].Algorithm, rule.Limits[0].Requests)
			}
			if got != want {
				t.Errorf("%s: %q, want %q", es, got, want)
			}
		})
	}
	if path := d.Match(limitstest.Entries("tenant=t,a=x")).Path(); path != "tenant / a=x" {
		t.Errorf("path %s", path)
	}
	w := r.Warnings()
	if len(w) != 1 || w[0].File != filepath.Join(dir, "2.yaml") || !strings.Contains(w[0].Text, `never matches: the pattern "/a*" before it`) {
		t.Errorf("warnings: %v", w)
	}
}

func TestMergingTellsOfConflicts(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, dir, "1.yaml", "domain: d\nhash_tag: a\ndescriptors: [{key: a}, {key: a, value: x}, {key: a, value: 'x*'}, {key: b}]\n")
	filetest.Write(t, dir, "2.yaml", "domain: d\nhash_tag: b\ndescriptors: [{key: b, value: y}, {key: a, value: 'x*'}, {key: a}]\n")
	filetest.Write(t, dir, "3.yaml", "domain: d\ndescriptors:\n- {key: a, value: x}\n- {key: b, value: y}\n")
	_, err := merging.Load(dir)
	if err == nil {
		t.Fatal("no error")
	}
	want := []string{
		`2.yaml:2:11: hash_tag: found the hash_tag "b", but the domain has "a" in another file; allowed: the same hash_tag in all files of a domain, or none`,
		`2.yaml:3:35: descriptors[1]: found "a" with the value "x*" again, the first is in 1.yaml:3; allowed: each key with each value once in a domain`,
		`2.yaml:3:58: descriptors[2]: found the key "a" again, the first is in 1.yaml:3; allowed: each key with each value once in a domain`,
		`3.yaml:3:3: descriptors[0]: found "a" with the value "x" again, the first is in 1.yaml:3; allowed: each key with each value once in a domain`,
		`3.yaml:4:3: descriptors[1]: found "b" with the value "y" again, the first is in 2.yaml:3; allowed: each key with each value once in a domain`,
	}
	if got := strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), ""); got != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

func TestFilesOfOneDomainHaveTooManyPatternsTogether(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, dir, "1.yaml", "domain: d\ndescriptors:\n"+limitstest.Patterns(600, func(i int) string { return fmt.Sprintf("a%d*", i) }))
	filetest.Write(t, dir, "2.yaml", "domain: d\ndescriptors:\n"+limitstest.Patterns(600, func(i int) string { return fmt.Sprintf("b%d*", i) }))
	filetest.Write(t, dir, "3.yaml", "domain: d\ndescriptors:\n- {key: k, value: 'c*'}\n")
	_, err := merging.Load(dir)
	if err == nil || !strings.HasPrefix(err.Error(), filepath.Join(dir, "2.yaml")+`:403:3: descriptors[400]: found 1200 patterns of the key "k" at this level`) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}
