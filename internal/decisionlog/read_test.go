package decisionlog_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
)

// full has every field.
func full() *decisionlog.Line {
	return &decisionlog.Line{
		At: 1795392000000001, Seq: 7, API: "grpc", Limits: "00112233445566aa", Domain: "api",
		Result: decisionlog.Denied, Code: "Unavailable", Degraded: true, TraceID: strings.Repeat("ab", 16),
		Descriptors: []decisionlog.Descriptor{{
			Entries: []bucket.Entry{{Key: "tenant", Value: "acme"}, {Key: "path", Value: "/x"}},
			Rule:    "tenant / path=/x", Plan: "pro", Unlimited: true, Cost: -1, Reports: true, Doubtful: true, Result: decisionlog.Denied, Refusal: "blocked",
			Limits: []decisionlog.Limit{{
				Name: "second", Result: "denied", At: 1795392000000002, Seq: 3, Remaining: 5, RetryAfter: 120 * time.Millisecond,
				ResetAfter: 500 * time.Millisecond, Degraded: true, Remembered: true, TakenAt: 9,
				Numbers: &decisionlog.Numbers{Algorithm: "token_bucket", Requests: 5, Period: time.Second, Burst: 5, Assigned: true},
			}, {Name: "month", Result: "denied", RetryAfter: bucket.Never}},
		}, {Result: decisionlog.Shadowed}},
	}
}

// usual is a line of a usual request.
func usual() *decisionlog.Line {
	return &decisionlog.Line{
		At: 1795392000000001, Seq: 7, API: "grpc", Limits: "00112233445566aa", Domain: "api",
		Descriptors: []decisionlog.Descriptor{{
			Entries: []bucket.Entry{{Key: "tenant", Value: "acme"}, {Key: "path", Value: "/x"}},
			Rule:    "tenant / path=/x", Cost: 1,
			Limits: []decisionlog.Limit{{Name: "second", Result: "allowed", Remaining: 5, ResetAfter: 500 * time.Millisecond}},
		}},
	}
}

func written(l *decisionlog.Line) []byte { return l.AppendJSON(nil) }

// same compares lines; nil and empty slices are the same.
func same(a, b *decisionlog.Line) bool {
	plain := func(l *decisionlog.Line) *decisionlog.Line {
		c := *l
		c.Descriptors = append([]decisionlog.Descriptor{}, l.Descriptors...)
		for i := range c.Descriptors {
			d := &c.Descriptors[i]
			d.Entries = append([]bucket.Entry{}, d.Entries...)
			d.Limits = append([]decisionlog.Limit{}, d.Limits...)
		}
		c.Files = append([]decisionlog.File{}, l.Files...)
		return &c
	}
	return reflect.DeepEqual(plain(a), plain(b))
}

func TestOtherSpellingsAreRead(t *testing.T) {
	t.Parallel()
	var got decisionlog.Line
	err := got.ReadJSON([]byte(`{ "domain": "api", "more": [{"x": null}], "result": "denied", "time": "2026-11-23T01:00:00+01:00", "v": 1,
		"descriptors": [{"limits": [{"retry_after_us": -1, "name": "n", "more": 1}], "entries": [["k", "\u00fc"]], "result": "denied"}]}`))
	want := &decisionlog.Line{At: 1795392000000000, Domain: "api", Result: decisionlog.Denied, Descriptors: []decisionlog.Descriptor{{
		Entries: []bucket.Entry{{Key: "k", Value: "ü"}}, Result: decisionlog.Denied, Limits: []decisionlog.Limit{{Name: "n", RetryAfter: bucket.Never}},
	}}}
	if err != nil || !same(want, &got) {
		t.Errorf("%v: %+v", err, &got)
	}
}

func TestBadLinesAreRefused(t *testing.T) {
	t.Parallel()
	const ok = `{"v":1,"time":"2026-11-23T00:00:00.000001Z","domain":"api","result":"allowed"}`
	if err := new(decisionlog.Line).ReadJSON([]byte(ok)); err != nil {
		t.Fatal(err)
	}
	failed := strings.Replace(strings.Replace(ok, "allowed", "error", 1), "}", `,"code":"Unavailable","descriptors":[{"entries":[["a","b"]],"cost":1,"result":"error"}]}`, 1)
	if err := new(decisionlog.Line).ReadJSON([]byte(failed)); err != nil {
		t.Error(err)
	}
	for bad, says := range map[string]string{
		"": "ends within", "\x00\x00": "byte 1", `{"v":1,"time":"2026-11-23T`: "ends within",
		`{"time":"2026-11-23T00:00:00.000001Z"}`: "v: found none", strings.Replace(ok, `"v":1`, `"v":2`, 1): "newer",
		strings.Replace(ok, "11-23", "02-30", 1): "time: found", strings.Replace(ok, "2026", "1969", 1): "time: found",
		strings.Replace(ok, "2026", "2200", 1): "time: found", strings.Replace(ok, "allowed", "fine", 1): "result: found",
		strings.Replace(ok, `{"v":1,`, `{"v":1,"kind":"x",`, 1): "kind: found", ok + "x": "byte", `{"v":1e300}`: "v: found", `[]`: "found JSON of the kind array",
		strings.Repeat("[", 1e6): "exceeded max depth", "[" + strings.Repeat("1,", 5<<20): "commas",
		strings.Replace(ok, "}", `,"descriptors":[{"entries":[["a"]],"result":"allowed"}]}`, 1):                                 "entries[0]",
		strings.Replace(ok, "}", `,"descriptors":[{"result":"allowed","limits":[{"name":"a"},{"retry_after_us":-2}]}]}`, 1):     "descriptors[0].limits[1].retry_after_us: found -2, which is out of range",
		strings.Replace(ok, "}", `,"descriptors":[{"result":"allowed","limits":[{"reset_after_us":9223372036854775807}]}]}`, 1): "out of range",
		strings.Replace(ok, "}", `,"descriptors":[{"result":"allowed","limits":[{"numbers":{"period_us":-1}}]}]}`, 1):           "descriptors[0].limits[0].numbers.period_us: found -1",
		strings.Replace(ok, "}", `,"descriptors":[{"result":"error"}]}`, 1):                                                     "descriptors[0].result",
		strings.Replace(ok, "}", `,"settings":{"unmatched":"maybe"}}`, 1):                                                       "settings.unmatched",
		strings.Replace(ok, "}", `,"settings":{"max_clock_skew_us":-1}}`, 1):                                                    "settings.max_clock_skew_us",
	} {
		err := new(decisionlog.Line).ReadJSON([]byte(bad))
		var line *decisionlog.LineError
		if !errors.As(err, &line) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "; allowed: ") {
			t.Errorf("%.80q: %v, which does not say %q", bad, err, says)
		}
	}
}

// The head of a line is that of all of it, in whatever form the line is.
func TestHeadsAreThoseOfLines(t *testing.T) {
	t.Parallel()
	first := usual()
	first.Seq = 0
	back := usual()
	back.Kind = decisionlog.GivenBack
	spaced := []byte(`{ "v": 1, "seq": 8, "time": "2026-11-23T01:00:00+01:00", "result": "allowed" }`)
	var r decisionlog.Reader
	for _, text := range [][]byte{written(usual()), written(first), written(back), written(full()), spaced} {
		var l decisionlog.Line
		h, err := r.Head(text)
		if wrong := r.Read(&l, text); err != nil || wrong != nil || h != (decisionlog.Head{At: l.At, Seq: l.Seq, Kind: l.Kind}) {
			t.Errorf("%s: %+v (%v), and all of it is %+v (%v)", text, h, err, &l, wrong)
		}
	}
	for _, bad := range []string{"", "{}", `{"v":1,"time":"2026-11-31T00:00:00.000001Z","seq":1,"api":"grpc"}`, `{"v":1,"time":"2026-11-23T00:00:00.000001Z","seq":-1,"api":"grpc"}`} {
		if h, err := r.Head([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, h)
		}
	}
}

func TestReadingAllocatesLittle(t *testing.T) {
	text := written(usual())
	var r decisionlog.Reader
	var l decisionlog.Line
	if n := testing.AllocsPerRun(100, func() {
		if err := r.Read(&l, text); err != nil {
			t.Fatal(err)
		}
	}); n > 8 {
		t.Errorf("%v allocations", n)
	}
}

// A reader reads each line as if it were alone, whatever was before, and whatever it
// reads can be written.
func FuzzReader(f *testing.F) {
	other := usual()
	other.At, other.Domain = other.At+61e6, "other"
	f.Add(written(usual()), written(other), written(full()))
	f.Add(written(usual()), []byte(`{"v":1,"time":"2026-11-23T00:00:61.000001Z","result":"allowed"}`), []byte(`{"v":1,"time":"2026-11-23T00:00:0x.000001Z","result":"allowed"}`))
	f.Add(written(&decisionlog.Line{Kind: decisionlog.Loaded, Files: []decisionlog.File{{Name: "n", Text: "t"}}}), []byte(`{"v":1,"time":"2026-11-23T00:00:00.000001Z","result":"allowed","descriptors":[{"entries":[["\ud800","`+"\xff"+`"]],"cost":-0,"result":"allowed"}]}`), []byte(`{"v":{"v":[[]]}}`))
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		var r decisionlog.Reader
		var got decisionlog.Line
		for _, text := range [][]byte{a, b, a, c, b, c} {
			h, errHead := r.Head(text)
			err := r.Read(&got, text)
			var alone decisionlog.Line
			wanted := alone.ReadJSON(text)
			if (err == nil) != (wanted == nil) || errHead != nil && err == nil {
				t.Fatalf("%q: %v, head %v, alone %v", text, err, errHead, wanted)
			}
			if err != nil {
				continue
			}
			if !same(&got, &alone) || h != (decisionlog.Head{At: alone.At, Seq: alone.Seq, Kind: alone.Kind}) {
				t.Fatalf("%q: %+v\n%+v", text, &got, &alone)
			}
			if line := got.AppendJSON(nil); !json.Valid(line) {
				t.Fatalf("%q is written as %q", text, line)
			}
		}
	})
}

func BenchmarkReadJSON(b *testing.B) {
	text := written(usual())
	b.SetBytes(int64(len(text)))
	var r decisionlog.Reader
	var l decisionlog.Line
	for b.Loop() {
		if err := r.Read(&l, text); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}
