package config_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// load loads a file with this text.
func load(t testing.TB, text string) (*config.Rules, error) {
	t.Helper()
	return config.LoadRules(filetest.Write(t, t.TempDir(), "limits.yaml", text))
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
