package limitsfile_test

import (
	"path/filepath"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// announced is what a Live announced before it put rules in force.
type announced struct {
	rules *rules.Set
	texts []limitsfile.Text
	live  *rules.Live
	early int // calls before the rules were in force
}

func (a *announced) receive(r *rules.Set, texts []limitsfile.Text) {
	if a.live.Rules() != r {
		a.early++
	}
	a.rules, a.texts = r, texts
}

// again returns the fingerprint of the rules in the texts.
func (a *announced) again(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, text := range a.texts {
		filetest.Write(t, dir, text.Name, text.Text)
	}
	rules, err := limitsfile.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return rules.Fingerprint()
}

func TestRulesAreAnnouncedWithTheirFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	filetest.Write(t, dir, "a.yaml", "domain: a\ndescriptors: [{key: k, rate_limit: {requests: 1, period: 1s}}]\n")
	filetest.Write(t, dir, filepath.Join("sub", "b.yaml"), "domain: b\ndescriptors: [{key: k, rate_limit: {requests: 2, period: 1s}}]\n")
	var a announced
	a.live = limitsfile.Options{Announce: a.receive}.NewLive(dir, nil)
	if err := a.live.Reload(); err != nil {
		t.Fatal(err)
	}
	if a.early != 1 || len(a.texts) != 2 || a.texts[0].Name != "a.yaml" || a.texts[1].Name != "sub/b.yaml" {
		t.Fatalf("%d calls in time, with %+v", a.early, a.texts)
	}
	if got := a.again(t); got != a.live.Rules().Fingerprint() {
		t.Errorf("the texts make rules %s, those in force are %s", got, a.live.Rules().Fingerprint())
	}
	filetest.Write(t, dir, "a.yaml", "domain: 5: 6\n")
	if err := a.live.Reload(); err == nil || a.early != 1 {
		t.Errorf("wrong files were announced: %v", err)
	}
	filetest.Write(t, dir, "a.yaml", "domain: a\n")
	if err := a.live.Reload(); err != nil || a.early != 2 || a.again(t) != a.live.Rules().Fingerprint() {
		t.Errorf("%v, %d calls, %+v", err, a.early, a.texts)
	}
}

func TestAFileAloneIsAnnouncedByItsName(t *testing.T) {
	t.Parallel()
	var a announced
	a.live = limitsfile.Options{Announce: a.receive}.NewLive(filetest.Write(t, t.TempDir(), "my limits", "domain: a\n"), nil)
	if err := a.live.Reload(); err != nil {
		t.Fatal(err)
	}
	if len(a.texts) != 1 || a.texts[0] != (limitsfile.Text{Name: "my limits", Text: "domain: a\n"}) {
		t.Errorf("%+v", a.texts)
	}
}

func TestResourcesAreAnnouncedAsFiles(t *testing.T) {
	t.Parallel()
	var a announced
	fed := limitsfile.Options{Announce: a.receive}.NewFedLive("elsewhere", nil)
	a.live = fed.Live
	const text = "domain: a\ndescriptors: [{key: k, value: \"5\", rate_limit: {requests_per_unit: 1, unit: second}, descriptors: [{key: \"a: b\", rate_limit: {unlimited: true}}]}]\n"
	resource := limitsfile.Resource{Name: "a.yaml", Text: []byte(text)}
	if err := fed.Feed([32]byte{1}, []limitsfile.Resource{resource}); err != nil {
		t.Fatal(err)
	}
	if got := a.again(t); got != a.live.Rules().Fingerprint() {
		t.Errorf("%+v makes rules %s, those in force are %s", a.texts, got, a.live.Rules().Fingerprint())
	}
}
