package find_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog/find"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog/sink"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

const at = 1795392000000000

// textOf returns a line about descriptors, so many microseconds after at.
func textOf(after int64, change func(*decisionlog.Line), descriptors ...decisionlog.Descriptor) string {
	l := decisionlog.Line{At: at + after, Domain: "api", Descriptors: descriptors}
	if change != nil {
		change(&l)
	}
	return string(l.AppendJSON(nil)) + "\n"
}

func about(words ...string) decisionlog.Descriptor {
	d := decisionlog.Descriptor{Cost: 1}
	for i := 0; i < len(words); i += 2 {
		d.Entries = append(d.Entries, bucket.Entry{Key: words[i], Value: words[i+1]})
	}
	return d
}

// search returns the moments of the lines that are found, after at.
func search(t *testing.T, q find.Query, text string) (found []int64, stats find.Stats) {
	t.Helper()
	f := find.New(t.Context(), find.Options{Query: q, Tell: func(f find.Found) error {
		found = append(found, f.At-at)
		return nil
	}})
	if err := f.Read("log", strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return found, f.Stats
}

func TestLinesAreFound(t *testing.T) {
	t.Parallel()
	acme, other := about("tenant", "acme", "path", "/x"), about("user", "bob")
	acme.Rule, acme.Plan = "tenant / path", "pro"
	denied := func(l *decisionlog.Line) { l.Result = decisionlog.Denied }
	over := other
	over.Result, over.Limits = decisionlog.Denied, []decisionlog.Limit{{Name: "second", Result: "denied", RetryAfter: time.Second}}
	blocked := about("tenant", "mallory")
	blocked.Result, blocked.Refusal = decisionlog.Denied, "blocked"
	shadowed := about("tenant", "shadow")
	shadowed.Result, shadowed.Limits = decisionlog.Shadowed, []decisionlog.Limit{{Name: "second", Result: "shadowed"}}
	secret := []byte("0123456789abcdef")
	hashed := about("tenant", decisionlog.HashOf(secret, "tenant", "acme"), "path", decisionlog.HashOf(secret, "path", "/x"))
	text := textOf(1, nil, acme) +
		textOf(2, denied, acme, over) +
		textOf(3, denied, blocked) +
		textOf(4, nil, shadowed) +
		textOf(5, func(l *decisionlog.Line) { l.Domain = "web" }, acme) +
		textOf(6, func(l *decisionlog.Line) { l.Result, l.Code = decisionlog.Failed, "Unavailable" }) +
		textOf(7, func(l *decisionlog.Line) { l.Kind = decisionlog.GivenBack }, acme) +
		textOf(8, func(l *decisionlog.Line) { l.Kind = decisionlog.Loaded }) +
		textOf(9, nil, hashed)
	subject := []bucket.Entry{{Key: "tenant", Value: "acme"}}
	for name, c := range map[string]struct {
		query find.Query
		want  []int64
	}{
		"all":                    {find.Query{}, []int64{1, 2, 3, 4, 5, 6, 7, 9}},
		"a subject":              {find.Query{Subject: subject}, []int64{1, 2, 5, 7}},
		"a longer subject":       {find.Query{Subject: acme.Entries}, []int64{1, 2, 5, 7}},
		"a subject and its hash": {find.Query{Subject: subject, HashKey: secret}, []int64{1, 2, 5, 7, 9}},
		"a pasted hash":          {find.Query{Subject: hashed.Entries[:1]}, []int64{9}},
		"what does not begin so": {find.Query{Subject: acme.Entries[1:]}, nil},
		"a beginning of a value": {find.Query{Subject: []bucket.Entry{{Key: "tenant", Value: "ac"}}}, nil},
		"a domain":               {find.Query{Domain: "web"}, []int64{5}},
		"a rule":                 {find.Query{Rule: "tenant / path"}, []int64{1, 2, 5, 7}},
		"a rule with its plan":   {find.Query{Rule: "tenant / path (plan pro)", Domain: "web"}, []int64{5}},
		"a rule of another":      {find.Query{Rule: "tenant / path", Subject: other.Entries}, nil},
		"denied":                 {find.Query{Result: "denied"}, []int64{2, 3}},
		"denied, by another":     {find.Query{Result: "denied", Subject: subject}, []int64{2}},
		"allowed":                {find.Query{Result: "allowed"}, []int64{1, 4, 5, 9}},
		"shadowed":               {find.Query{Result: "shadowed"}, []int64{4}},
		"blocked":                {find.Query{Result: "blocked"}, []int64{3}},
		"failed":                 {find.Query{Result: "error"}, []int64{6}},
		"given back":             {find.Query{Result: "give_back"}, []int64{7}},
		"from a moment":          {find.Query{Since: at + 6}, []int64{6, 7, 9}},
		"before a moment":        {find.Query{Until: at + 3}, []int64{1, 2}},
		"a subject and a time":   {find.Query{Subject: subject, Since: at + 2, Until: at + 7}, []int64{2, 5}},
	} {
		if got, _ := search(t, c.query, text); !slices.Equal(got, c.want) {
			t.Errorf("%s finds %v, not %v", name, got, c.want)
		}
	}
	for _, word := range find.Results() {
		if _, stats := search(t, find.Query{Result: word}, text); stats.Unread > 0 {
			t.Errorf("%s: %v", word, stats.FirstUnread)
		}
	}
	if _, s := search(t, find.Query{Subject: acme.Entries[1:]}, text); s.Hashed != 1 || !slices.Equal(s.Elsewhere, acme.Entries) || s.About != 0 {
		t.Errorf("of what is not found it says %+v", s)
	}
}

// What cannot be read is counted, and the rest is found.
func TestUnreadableLinesAreCounted(t *testing.T) {
	t.Parallel()
	one := textOf(1, nil, about("user", "a"))
	text := one + "no JSON\n\n" + `{"v":99}` + "\n" + strings.TrimSuffix(textOf(2, nil, about("user", "a")), "\n") + "\r\n" + `{"v":1,"time":"2026`
	found, s := search(t, find.Query{}, text)
	if !slices.Equal(found, []int64{1, 2}) || s.Unread != 2 || !strings.HasPrefix(s.FirstUnread.Error(), "log:2: ") {
		t.Errorf("it finds %v, and %d are unread: %v", found, s.Unread, s.FirstUnread)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, strings.Repeat(one, 1000))
	_ = z.Close()
	for _, cut := range []int{3, 5, zipped.Len() - 4} {
		if found, s = search(t, find.Query{}, zipped.String()[:cut]); s.Unread == 0 && cut > 3 || cut > 100 && len(found) == 0 {
			t.Errorf("of %d bytes it finds %d lines, and %d are unread: %v", cut, len(found), s.Unread, s.FirstUnread)
		}
	}
}

// A line, however long, takes bounded memory, also where it is compressed.
func TestLongLinesTakeBoundedMemory(t *testing.T) {
	const size, maxUsed = 300 << 20, 100 << 20
	long := func() io.Reader {
		return io.MultiReader(io.LimitReader(zeros{}, size), strings.NewReader("\n"+textOf(1, nil, about("user", "a"))))
	}
	packed, w := io.Pipe()
	go func() {
		z, _ := zstd.NewWriter(w)
		_, _ = io.Copy(z, long())
		w.CloseWithError(z.Close())
	}()
	for name, from := range map[string]io.Reader{"plain": long(), "packed": packed} {
		n := 0
		f := find.New(t.Context(), find.Options{Tell: func(find.Found) error { n++; return nil }})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := f.Read("log", from); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if n != 1 || f.Unread != 1 || !strings.Contains(f.FirstUnread.Error(), "log:1: found a line of more than 16777216 bytes") {
			t.Errorf("%s: it finds %d, and %d are unread: %v", name, n, f.Unread, f.FirstUnread)
		}
		// What was allocated in all, so more than what was held at once.
		if used := after.TotalAlloc - before.TotalAlloc; name == "plain" && used > maxUsed {
			t.Errorf("%s: it takes %d bytes", name, used)
		}
	}
}

type zeros struct{}

var someZeros = strings.Repeat("0", 64<<10)

func (zeros) Read(b []byte) (int, error) {
	return copy(b, someZeros), nil
}

func TestCompressedFilesAreRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := textOf(1, nil, about("user", "a")) + textOf(2, nil, about("user", "b"))
	var gz, zs bytes.Buffer
	z := gzip.NewWriter(&gz)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	s, err := zstd.NewWriter(&zs)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(s, text)
	_ = s.Close()
	for name, content := range map[string]string{"plain": text, "gz": gz.String(), "zst": zs.String()} {
		n := 0
		f := find.New(t.Context(), find.Options{Tell: func(find.Found) error { n++; return nil }})
		if err := f.File(filetest.Write(t, dir, name, content)); err != nil || n != 2 || f.Unread != 0 {
			t.Errorf("%s: it finds %d, %v, %v", name, n, err, f.FirstUnread)
		}
	}
}

// followed is a search that goes on beside its test.
type followed struct {
	t     *testing.T
	found asynctest.Buffer
	end   context.CancelFunc
	ended chan error
}

func follow(t *testing.T, path string, begin find.Begin) *followed {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &followed{t: t, end: cancel, ended: make(chan error, 1)}
	f := find.New(ctx, find.Options{Poll: time.Millisecond, Tell: func(f find.Found) error {
		_, err := fmt.Fprintf(&r.found, "%d\n", f.At-at)
		return err
	}})
	go func() { r.ended <- f.Follow(path, begin) }()
	return r
}

// until waits for a line, and returns all that were found.
func (r *followed) until(last int64) []string {
	r.t.Helper()
	asynctest.Eventually(r.t, fmt.Sprintf("line %d is found", last), func() bool {
		return strings.HasSuffix("\n"+r.found.String(), fmt.Sprintf("\n%d\n", last))
	})
	return strings.Fields(r.found.String())
}

func (r *followed) stop() {
	r.t.Helper()
	r.end()
	if err := <-r.ended; err != nil {
		r.t.Error(err)
	}
}

func numbered(from, to int64) string {
	var s strings.Builder
	for i := from; i <= to; i++ {
		s.WriteString(textOf(i, nil, about("user", "a")))
	}
	return s.String()
}

func wantNumbers(t *testing.T, got []string, from, to int64) {
	t.Helper()
	var want []string
	for i := from; i <= to; i++ {
		want = append(want, fmt.Sprint(i))
	}
	if !slices.Equal(got, want) {
		t.Errorf("it finds %d lines, not %d in order: %.200q", len(got), len(want), got)
	}
}

// While the daemon's file is rotated and compressed, each line is found once, in order.
func TestFollowingGoesThroughRotation(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "decisions.jsonl")
	file, err := sink.Open(sink.Options{
		Path: path, MaxSize: 3000, Keep: 10_000, Compress: true, Buffer: 64 << 20, Log: slog.New(slog.DiscardHandler),
		Counts: sink.NewCounts(sink.NewLines(prometheus.NewRegistry(), "lines", "Lines.")),
	})
	if err != nil {
		t.Fatal(err)
	}
	file.Announce("00112233445566aa", nil)
	write := func(from, to int64) {
		for _, line := range strings.SplitAfter(strings.TrimSuffix(numbered(from, to), "\n"), "\n") {
			file.Write([]byte(strings.TrimSuffix(line, "\n")+"\n"), 0, bucket.SpanRef{})
		}
	}
	write(1, 500)
	r := follow(t, path, find.FromRotated)
	r.until(500)
	write(501, 1500)
	r.until(1500)
	file.Close()
	wantNumbers(t, r.until(1500), 1, 1500)
	r.stop()
	// The same without following, once all is there.
	var all []string
	f := find.New(t.Context(), find.Options{Tell: func(f find.Found) error {
		all = append(all, fmt.Sprint(f.At-at))
		return nil
	}})
	if err := f.Files(path); err != nil {
		t.Fatal(err)
	}
	wantNumbers(t, all, 1, 1500)
	if names, err := sink.Rotated(path); err != nil || len(names) < 10 {
		t.Errorf("it was rotated into %d files, %v", len(names), err)
	}
}

// Somebody else moves the file away, or cuts it off, or it comes only later.
func TestFollowingGoesOnWhereOthersRotate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "decisions.jsonl")
	add := func(name, text string) {
		t.Helper()
		file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = io.WriteString(file, text)
			file.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r := follow(t, path, find.FromNow)
	add(path, numbered(1, 1))
	asynctest.Eventually(t, "something is found", func() bool {
		add(path, numbered(2, 2))
		return r.found.String() != ""
	})
	add(path, numbered(3, 3))
	r.until(3)
	half := numbered(4, 4)
	add(path, half[:20])
	add(path, half[20:])
	r.until(4)
	moved := filepath.Join(dir, "decisions.jsonl.1")
	if err := os.Rename(path, moved); err != nil {
		t.Fatal(err)
	}
	add(moved, numbered(5, 5)) // a daemon that has not noticed
	add(path, numbered(6, 100))
	if got := r.until(100); !slices.Equal(got[len(got)-98:len(got)-94], []string{"3", "4", "5", "6"}) {
		t.Errorf("it finds %q", got)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	add(path, numbered(101, 101))
	r.until(101)
	r.stop()
}

// What was written before is not shown where only what comes is asked for.
func TestFollowingFromNow(t *testing.T) {
	t.Parallel()
	path := filetest.Write(t, t.TempDir(), "decisions.jsonl", numbered(1, 3))
	r := follow(t, path, find.FromNow)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	asynctest.Eventually(t, "a new line is found", func() bool {
		_, _ = io.WriteString(file, numbered(4, 4))
		return r.found.String() != ""
	})
	r.stop()
	for _, n := range strings.Fields(r.found.String()) {
		if n != "4" {
			t.Errorf("it finds %s", n)
		}
	}
}

func TestRotatedFilesSayWhen(t *testing.T) {
	t.Parallel()
	want := time.Date(2026, 11, 23, 1, 2, 3, 4000, time.UTC)
	for _, name := range []string{"/x/decisions-20261123T010203.000004.jsonl", "decisions-20261123T010203.000004.jsonl.gz", "log-20261123T010203.000004"} {
		if at, ok := sink.RotatedAt(name); !ok || !at.Equal(want) {
			t.Errorf("%s says %v, %v", name, at, ok)
		}
	}
	if _, ok := sink.RotatedAt("decisions.jsonl"); ok {
		t.Error("a file that was not rotated says when")
	}
}
