package cli_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// Each recipe of the cookbook does what it says: behind each command stand, as comments,
// parts of what it prints.
func TestRecipesDoWhatTheySay(t *testing.T) {
	page, err := os.ReadFile("../../docs/cookbook.md")
	if err != nil {
		t.Fatal(err)
	}
	recipes := strings.Split(string(page), "\n## ")[1:]
	if len(recipes) < 7 {
		t.Fatalf("there are %d recipes", len(recipes))
	}
	for _, recipe := range recipes {
		title, _, _ := strings.Cut(recipe, "\n")
		t.Run(title, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.WriteFile("recipe.md", []byte(recipe), 0o600); err != nil {
				t.Fatal(err)
			}
			cook(t, "recipe.md")
		})
	}
}

// cook runs a recipe in the working folder.
func cook(t *testing.T, recipe string) {
	t.Helper()
	var limits []string
	for _, text := range clitest.Blocks(t, recipe, "yaml") {
		if strings.HasPrefix(text, "domain:") {
			limits = append(limits, text)
		}
	}
	if err := os.Mkdir("limits", 0o700); err != nil {
		t.Fatal(err)
	}
	for i, path := range []string{filepath.Join("limits", "recipe.yaml"), "next.yaml"}[:len(limits)] {
		if err := os.WriteFile(path, []byte(limits[i]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	clitest.StartDaemon(t, limits[0], filetest.Write(t, t.TempDir(), "tokens.yaml", fmt.Sprintf("- {name: me, role: operator, sha256: %x}\n", sha256.Sum256([]byte("secret")))))
	t.Setenv(dial.TokenVariable, "secret")
	command := regexp.MustCompile(`(?m)^(ratelimitd .*)\n((?:# .*\n)+)`)
	done := 0
	for _, text := range clitest.Blocks(t, recipe, "sh") {
		found := command.FindAllStringSubmatch(text, -1)
		if n := strings.Count("\n"+text, "\nratelimitd "); n != len(found) {
			t.Errorf("%d of %d commands say what they print:\n%s", len(found), n, text)
		}
		for _, m := range found {
			done++
			out, stderr, code := clitest.Run(t, "", clitest.Words(m[1])...)
			if code == cmdline.ExitError {
				t.Errorf("%s exits with %d: %s", m[1], code, stderr)
			}
			for want := range strings.Lines(m[2]) {
				if want = strings.TrimSpace(strings.TrimPrefix(want, "# ")); !strings.Contains(out, want) {
					t.Errorf("%s prints\n%s\nwant\n%s", m[1], out, want)
				}
			}
		}
	}
	if done == 0 {
		t.Error("it has no command")
	}
}
