package bucket_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
)

// Daemons of all versions that share a store must make the same keys: as it is
// up to 200 bytes, and from then on 83 from each end of it around 128 bits of
// its hash.
func TestLongKeysStay(t *testing.T) {
	l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 5, Period: time.Minute})
	for _, c := range []struct {
		bytes     int
		shortened bool
	}{
		{199, false}, {200, false}, {201, true}, {202, true}, {5000, true},
	} {
		subject := ("d|k=" + strings.Repeat("abcdefghijklmnopqrstuvw", 300))[:c.bytes-len("#gcra")]
		want := subject + "#gcra"
		if c.shortened {
			hash := sha256.Sum256([]byte(want))
			want = fmt.Sprintf("%s~%x~%s", want[:83], hash[:16], want[len(want)-83:])
		}
		for _, before := range []string{"", "rl{1}:"} {
			if got := string(l.AppendKey([]byte(before), []byte(subject))); got != before+want {
				t.Errorf("of %d bytes, after %q:\n got %s\nwant %s", c.bytes, before, got, before+want)
			}
		}
	}
}

// Bytes that mean something in a key, and control characters, are escaped; all
// others are as they are.
func TestEscapedBytes(t *testing.T) {
	for b := range 256 {
		raw := string([]byte{byte(b)})
		want := raw
		if b < 0x20 || b == 0x7f || strings.ContainsAny(raw, "%{}|=#~") {
			want = fmt.Sprintf("%%%02X", b)
		}
		if got := string(bucket.AppendSubject(nil, raw, nil)); got != want {
			t.Errorf("the byte %#x is written as %q, want %q", b, got, want)
		}
	}
}

// The subject of all values that match a pattern says which entry's values, and
// is none that a descriptor has by itself.
func TestSharedSubjects(t *testing.T) {
	of := func(pairs ...string) (entries []bucket.Entry) {
		for i := 0; i < len(pairs); i += 2 {
			entries = append(entries, bucket.Entry{Key: pairs[i], Value: pairs[i+1]})
		}
		return entries
	}
	for _, c := range []struct {
		domain  string
		entries []bucket.Entry
		shared  []string
		want    string
	}{
		{"d", of("k", "ab"), []string{"a*"}, "d|k==a*"},
		{"d", of("other", "ab"), []string{"a*"}, "d|other==a*"},
		{"d", of("k", "a*", "k", "bc"), []string{"", "b*"}, "d|k=a*|k==b*"},
		{"d", of("k", "ab", "k", "b*"), []string{"a*", ""}, "d|k==a*|k=b*"},
		{"d", of("k", "ab", "k", "bc"), []string{"a*", "b*"}, "d|k==a*|k==b*"},
		{"d", of("k", "=a*"), []string{""}, "d|k=%3Da*"},
		{"d|x", of("k=1", "=", "{k}", "#~%"), []string{"", "#*~%"}, "d%7Cx|k%3D1=%3D|%7Bk%7D==%23*%7E%25"},
	} {
		got := string(bucket.AppendSharedSubject([]byte("before "), c.domain, c.entries, c.shared))
		if got != "before "+c.want {
			t.Errorf("%q of %q: got %q, want %q", c.entries, c.domain, got, "before "+c.want)
		}
	}
}
