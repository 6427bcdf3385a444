package integration

import (
	"os/exec"
	"regexp"
	"testing"
)

// The recipe for a month's quota in Go says when the month ends.
func TestRecipeOfAMonthInGo(t *testing.T) {
	t.Parallel()
	d := start(t, "--limits-path", write(t, t.TempDir(), "limits.yaml", blockFrom(t, "docs/cookbook.md", "yaml", "domain: quota")))
	cmd := exec.Command("go", "run", "-trimpath", goExample(t, blocks(t, "docs/cookbook.md", "go")[0]), d.grpc)
	cmd.Env = plainGo()
	out, err := cmd.CombinedOutput()
	if want := `^99999 left this month until \d+ [A-Z][a-z]+ 2[23]:00 UTC\n$`; err != nil || !regexp.MustCompile(want).Match(out) {
		t.Errorf("it prints %s, %v, want %s", out, err, want)
	}
}
