package integration

import (
	"strings"
	"testing"
)

// A daemon takes the files of tokens and of callers that the page about access shows.
func TestDocumentedAccessFilesLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tokens := write(t, dir, "tokens.yaml", blockFrom(t, "docs/access.md", "yaml", "# tokens.yaml"))
	callers := write(t, dir, "callers.yaml", blockFrom(t, "docs/access.md", "yaml", "# callers.yaml"))
	d := start(t, "--limits-path", "../deploy/limits", "--admin-tokens-file", tokens, "--api-callers-file", callers)
	if _, err := d.tryAsk("api", 1, "user=alice"); err == nil || !strings.Contains(err.Error(), "Unauthenticated") {
		t.Errorf("an unknown caller gets %v", err)
	}
}

// What the page about security says of the admin port's pages is so: those that need no
// role are there with a tokens file, and the admin API is not.
func TestAdminPagesNeedWhatIsDocumented(t *testing.T) {
	t.Parallel()
	page := readPage(t, "docs/security.md")
	d := start(t, "--limits-path", "../deploy/limits", "--admin-tokens-file", write(t, t.TempDir(), "tokens.yaml", "[]\n"))
	for path, want := range map[string]int{"/healthz": 200, "/metrics": 200, "/rlconfig": 200, "/debug/pprof/": 200, "/admin/v1/domains": 401} {
		documented := path
		if strings.HasPrefix(path, "/admin/v1") {
			documented = "/admin/v1"
		}
		if !strings.Contains(page, "`"+documented+"`") {
			t.Errorf("the page does not name %s", documented)
		}
		if code, _ := get(t, "http://"+d.admin+path); code != want {
			t.Errorf("%s answers %d, want %d", path, code, want)
		}
	}
}
