// Package limitstest provides limits for tests and loads them. It imports limitsfile and
// rules.
package limitstest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// Load loads a file with this text.
func Load(t testing.TB, text string) (*rules.Set, error) {
	t.Helper()
	return limitsfile.Load(filetest.Write(t, t.TempDir(), "limits.yaml", text))
}

// Domain loads a file with this text, whose domain is "d".
func Domain(t testing.TB, text string) *rules.Domain {
	t.Helper()
	r, err := Load(t, text)
	if err != nil {
		t.Fatal(err)
	}
	d := r.Domain("d")
	if d == nil {
		t.Fatal("no domain d")
	}
	return d
}

// Fingerprint loads a file with this text.
func Fingerprint(t testing.TB, text string) string {
	t.Helper()
	r, err := Load(t, text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return r.Fingerprint()
}

// Entries reads "key=value,key=value".
func Entries(text string) []bucket.Entry {
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

// Descriptor is a file with one descriptor that contains this text, on lines 3 and 4.
func Descriptor(text string) string { return "domain: d\ndescriptors:\n- key: k\n  " + text + "\n" }

// Many returns the items numbered from one number to another.
func Many(item string, from, to int) string {
	var items []string
	for i := from; i <= to; i++ {
		items = append(items, fmt.Sprintf(item, i))
	}
	return strings.Join(items, ", ")
}

// ManyRules is a file of n rules, three levels deep, with patterns.
func ManyRules(n int) string {
	var s strings.Builder
	s.WriteString("domain: d\ndescriptors:\n- key: tenant\n  descriptors:\n")
	for i := range n / 2 {
		fmt.Fprintf(&s, "  - key: user\n    value: u%d\n    descriptors:\n", i)
		s.WriteString("    - {key: route, value: \"/api/*\", rate_limit: {requests: 100, period: 60s}}\n    - {key: route, rate_limit: {requests: 10, period: 60s}}\n")
	}
	s.WriteString("  - key: user\n    value: 'u*'\n    descriptors: [{key: route, rate_limit: {requests: 1, period: 1s}}]\n")
	return s.String()
}

// Patterns writes n descriptors of the key k, each with the pattern that f
// makes of its number.
func Patterns(n int, f func(i int) string) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, "- {key: k, value: '%s', rate_limit: {requests: 1, period: 1s}}\n", f(i))
	}
	return s.String()
}
