package access_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// TestTokensAreWrittenIntoTheTextOfPeople has X for the digest of the new token, and A
// and B for those of tokens that are there.
func TestTokensAreWrittenIntoTheTextOfPeople(t *testing.T) {
	t.Parallel()
	add := func(name string, role access.Role) func(*access.TokensText, access.Digest) ([]byte, error) {
		return func(t *access.TokensText, d access.Digest) ([]byte, error) { return t.Add(name, role, d) }
	}
	beside := func(name string, role access.Role) func(*access.TokensText, access.Digest) ([]byte, error) {
		return func(t *access.TokensText, d access.Digest) ([]byte, error) { return t.AddBeside(name, role, d) }
	}
	replace := func(name string, role access.Role) func(*access.TokensText, access.Digest) ([]byte, error) {
		return func(t *access.TokensText, d access.Digest) ([]byte, error) { return t.Replace(name, role, d) }
	}
	const a = "- {name: a, role: viewer, sha256: A}\n"
	for _, c := range []struct {
		name, text string
		do         func(*access.TokensText, access.Digest) ([]byte, error)
		want       string // or a part of the error, behind "error: "
	}{
		{"no file", "", add("a", access.Operator), "- name: a\n  role: operator\n  sha256: X\n"},
		{"comments alone", "# tokens", add("a", access.Viewer), "# tokens\n- name: a\n  role: viewer\n  sha256: X\n"},
		{"behind others", "# ours\n" + a + "\n# the end\n", add("b", access.Support), "# ours\n" + a + "\n# the end\n- name: b\n  role: support\n  sha256: X\n"},
		{"without a line's end", strings.TrimSpace(a), add("b", access.Support), a + "- name: b\n  role: support\n  sha256: X\n"},
		{"indented", "---\n  - name: a\n    role: viewer\n    sha256: A\n", add("b", access.Viewer), "---\n  - name: a\n    role: viewer\n    sha256: A\n  - name: b\n    role: viewer\n    sha256: X\n"},
		{"lines of Windows", "- {name: a, role: viewer, sha256: A}\r\n", add("b", access.Viewer), "- {name: a, role: viewer, sha256: A}\r\n- name: b\r\n  role: viewer\r\n  sha256: X\r\n"},
		{"a name that YAML would take for something else", a, add("yes: #1", access.Viewer), a + "- name: 'yes: #1'\n  role: viewer\n  sha256: X\n"},
		{"an empty list", "# none yet\n[ ] # so far\n", add("a", access.Viewer), "# none yet\n- name: a\n  role: viewer\n  sha256: X # so far\n"},
		{"JSON", "[\n {\"name\": \"a\", \"role\": \"viewer\", \"sha256\": \"A\"}\n]\n", add("b", access.Viewer),
			"[\n {\"name\": \"a\", \"role\": \"viewer\", \"sha256\": \"A\"},\n {\"name\":\"b\",\"role\":\"viewer\",\"sha256\":\"X\"}\n]\n"},
		{"brackets in a comment", "[{name: a, role: viewer, sha256: A}] # [b]\n", add("b", access.Viewer), "error: with the new entry the file would be wrong"},
		{"a comment within brackets", "[{name: a, role: viewer, sha256: A} # [b]\n]\n", add("b", access.Viewer), "error: with the new entry the file would be wrong"},
		{"the end of a document", a + "...\n", add("b", access.Viewer), "error: with the new entry the file would be wrong"},
		{"a name that has a certificate", "- {name: a, role: viewer, certificate: c}\n", add("a", access.Viewer), "- {name: a, role: viewer, certificate: c}\n- name: a\n  role: viewer\n  sha256: X\n"},
		{"a name that has a token", a, add("a", access.Viewer), "error: t.yaml: found a token of \"a\" on line 1: the name has a token"},
		{"a bad name", a, add("b\x01", access.Viewer), "error: without control characters"},
		{"a file with errors", "- {name: a, role: viewr, sha256: A}\n- {name: b}\n", add("c", access.Viewer), "error: t.yaml:1:19: [0].role: found the text \"viewr\" (viewer?)"},
		{"a mapping", "a: b\n", add("c", access.Viewer), "error: t.yaml:1:1: found a mapping"},
		{"one more", a, beside("a", access.NoRole), a + "- name: a\n  role: viewer\n  sha256: X\n"},
		{"one more with another role", a, beside("a", access.Operator), "error: found the role operator for \"a\", which has the role viewer on line 1; allowed: viewer, or another name"},
		{"one more of no one", a, beside("b", access.NoRole), "error: found no entry of \"b\", and no role for one; allowed: viewer, support, operator"},
		{"another", "# A\n" + a + "- {name: b, role: viewer, sha256: 'B'} # b's\n", replace("b", access.Viewer), "# A\n" + a + "- {name: b, role: viewer, sha256: 'X'} # b's\n"},
		{"another of two", a + strings.Replace(a, "A", "B", 1), replace("a", access.NoRole), "error: found 2 tokens of \"a\", on line 1, line 2; allowed: one"},
		{"another of no one", a, replace("b", access.Viewer), "error: found no token of \"b\" to replace; allowed: a"},
		{"another with another role", a, replace("a", access.Operator), "error: found the role operator for \"a\""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			token, digest := access.NewToken()
			digests := strings.NewReplacer("A", sum("old a"), "B", sum("old b"), "X", sum(token))
			if digest != sha256.Sum256([]byte(token)) {
				t.Errorf("the digest of %s is %x", token, digest)
			}
			var got []byte
			text, err := access.ReadTokensText("t.yaml", []byte(digests.Replace(c.text)))
			if err == nil {
				got, err = c.do(text, digest)
			}
			if part, fails := strings.CutPrefix(c.want, "error: "); fails {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("the error is %v, want %s", err, part)
				}
				return
			}
			if err != nil || string(got) != digests.Replace(c.want) {
				t.Errorf("%v, got\n%s\nwant\n%s", err, got, digests.Replace(c.want))
			}
		})
	}
}

// What cannot be written leaves the file, and nothing beside it.
func TestAFileIsRewrittenInOneStep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filetest.Write(t, dir, "real.yaml", "old")
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.yaml")
	if err := os.Symlink("real.yaml", link); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := access.Rewrite(link, func([]byte) ([]byte, error) { return []byte("half"), broken }); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	if err := access.Rewrite(link, func(text []byte) ([]byte, error) { return append(text, " and new"...), nil }); err != nil {
		t.Error(err)
	}
	text, _ := os.ReadFile(path)
	info, err := os.Stat(path)
	entries, _ := os.ReadDir(dir)
	if l, _ := os.Readlink(link); string(text) != "old and new" || err != nil || info.Mode().Perm() != 0o640 || l != "real.yaml" || len(entries) != 2 {
		t.Errorf("%q with %v, link to %q, %d files, %v", text, info.Mode(), l, len(entries), err)
	}
	made := filepath.Join(dir, "made.yaml")
	if err := access.Rewrite(made, func(text []byte) ([]byte, error) {
		if text != nil {
			t.Errorf("a file that is not there has %q", text)
		}
		return []byte("new"), nil
	}); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(made); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := access.Rewrite(dir, func(text []byte) ([]byte, error) { return nil, nil }); err == nil || !strings.Contains(err.Error(), "is no file") {
		t.Errorf("a folder: %v", err)
	}
}

// Commands that write at the same time wait for each other, and lose nothing.
func TestTokensMadeAtOnceAreAllThere(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			_, digest := access.NewToken()
			if err := access.Rewrite(path, func(text []byte) ([]byte, error) {
				before, err := access.ReadTokensText(path, text)
				if err != nil {
					return nil, err
				}
				return before.Add(fmt.Sprint("n", i), access.Viewer, digest)
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "name: n"); n != 8 {
		t.Errorf("%d of 8 are there:\n%s", n, text)
	}
}
