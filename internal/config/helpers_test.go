package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
)

// write makes a file with its folders and returns its path.
func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// load loads a file with this text.
func load(t testing.TB, text string) (*config.Rules, error) {
	t.Helper()
	return config.LoadRules(write(t, t.TempDir(), "limits.yaml", text))
}

// mustLoad loads a file with this text, which has the domain "d".
func mustLoad(t testing.TB, text string) *config.Domain {
	t.Helper()
	r, err := load(t, text)
	if err != nil {
		t.Fatal(err)
	}
	d := r.Domain("d")
	if d == nil {
		t.Fatal("no domain d")
	}
	return d
}

// entries reads "key=value,key=value".
func entries(text string) []bucket.Entry {
	var es []bucket.Entry
	if text == "" {
		return nil
	}
	for _, part := range strings.Split(text, ",") {
		k, v, _ := strings.Cut(part, "=")
		es = append(es, bucket.Entry{Key: k, Value: v})
	}
	return es
}

func table(t testing.TB, r *config.Rules) string {
	t.Helper()
	var s strings.Builder
	if err := r.WriteTable(&s); err != nil {
		t.Fatal(err)
	}
	return s.String()
}
