package decisionlog_test

import (
	"errors"
	"math/rand/v2"
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

func TestLinesAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	odd := usual()
	odd.Descriptors[0].Entries[0].Value = "a\"b\\c\nd\x00 \u2028 ü \U0001F600"
	odd.Descriptors[0].Entries[1].Value = "plain ünicode"
	loaded := &decisionlog.Line{Kind: decisionlog.Loaded, At: 5, Limits: "0011223344556677", Files: []decisionlog.File{{Name: "a.yaml", Text: "domain: a\n"}, {Name: "b.yaml"}}}
	withSettings, withDefaults := *loaded, *loaded
	withSettings.Settings = &decisionlog.Settings{ShadowMode: true, QuotaMode: true, Lenient: true, MergeDomains: true, DenyUnmatched: true, MaxClockSkew: time.Minute}
	withDefaults.Settings = new(decisionlog.Settings)
	back := usual()
	back.Kind = decisionlog.GivenBack
	back.Descriptors[0].Limits[0].TakenAt = 1763856000000001
	for _, want := range []*decisionlog.Line{full(), usual(), odd, loaded, &withSettings, &withDefaults, back} {
		var got decisionlog.Line
		for range 2 { // the second time with the memory of the first
			if err := got.ReadJSON(written(want)); err != nil {
				t.Fatal(err)
			}
			if !same(want, &got) {
				t.Errorf("wanted %+v\ngot    %+v", want, &got)
			}
		}
	}
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
		strings.Replace(ok, `{"v":1,`, `{"v":1,"kind":"x",`, 1): "kind: found", ok + "x": "byte", `{"v":1e300}`: "v: found",
		strings.Repeat("[", 1e6): "exceeded max depth",
		strings.Replace(ok, "}", `,"descriptors":[{"entries":[["a"]],"result":"allowed"}]}`, 1):                                 "entries[0]",
		strings.Replace(ok, "}", `,"descriptors":[{"result":"allowed","limits":[{"retry_after_us":-2}]}]}`, 1):                  "out of range",
		strings.Replace(ok, "}", `,"descriptors":[{"result":"allowed","limits":[{"reset_after_us":9223372036854775807}]}]}`, 1): "out of range",
		strings.Replace(ok, "}", `,"descriptors":[{"result":"allowed","limits":[{"numbers":{"period_us":-1}}]}]}`, 1):           "period_us",
		strings.Replace(ok, "}", `,"descriptors":[{"result":"error"}]}`, 1):                                                     "descriptors[0].result",
		strings.Replace(ok, "}", `,"settings":{"unmatched":"maybe"}}`, 1):                                                       "settings.unmatched",
		strings.Replace(ok, "}", `,"settings":{"max_clock_skew_us":-1}}`, 1):                                                    "settings.max_clock_skew_us",
		strings.Replace(ok, `"api"`, "\"a\npi\"", 1):                                                                            "byte", strings.Replace(ok, `"api"`, `"a\pi"`, 1): "byte",
	} {
		err := new(decisionlog.Line).ReadJSON([]byte(bad))
		var line *decisionlog.LineError
		if !errors.As(err, &line) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "; allowed: ") {
			t.Errorf("%.80q: %v, which does not say %q", bad, err, says)
		}
	}
}

// Every day reads as in package time.
func TestMoments(t *testing.T) {
	t.Parallel()
	var r decisionlog.Reader
	for day := range 52000 {
		want := time.Unix(0, 0).UTC().AddDate(0, 0, day).Add(time.Duration(rand.Int64N(int64(24 * time.Hour))))
		for range 2 { // the second time with what the reader knows of the minute
			h, err := r.Head([]byte(`{"v":1,"kind":"give_back","time":"` + want.Format("2006-01-02T15:04:05.000000Z") + `","seq":8,"api":`))
			if err != nil || h.At != want.UnixMicro() || h.Seq != 8 || h.Kind != decisionlog.GivenBack {
				t.Fatal(want, h, err)
			}
			want = want.Truncate(time.Minute).Add(time.Duration(rand.Int64N(int64(time.Minute))))
		}
	}
}

func TestReadingDoesNotAllocate(t *testing.T) {
	text := written(usual())
	var l decisionlog.Line
	if n := testing.AllocsPerRun(100, func() {
		if err := l.ReadJSON(text); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A reader of many lines reads each as if it were alone, whatever was before.
func FuzzReader(f *testing.F) {
	other := usual()
	other.At, other.Domain = other.At+61e6, "other"
	f.Add(written(usual()), written(other), written(full()))
	f.Add(written(usual()), []byte(`{"v":1,"time":"2026-11-23T00:00:61.000001Z","result":"allowed"}`), []byte(`{"v":1,"time":"2026-11-23T00:00:0x.000001Z","result":"allowed"}`))
	f.Add(written(&decisionlog.Line{API: "a"}), written(&decisionlog.Line{API: "a", Domain: "d"}), written(&decisionlog.Line{API: "a", Domain: "d\""}))
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		var r decisionlog.Reader
		var got decisionlog.Line
		for _, text := range [][]byte{a, b, a, c, b, c} {
			h, err := r.Head(text)
			if err == nil {
				err = r.Read(&got, text, h)
			}
			var alone decisionlog.Line
			wanted := decisionlog.ReadAny(&alone, text)
			if (err == nil) != (wanted == nil) {
				t.Fatalf("%q: %v, alone %v", text, err, wanted)
			}
			if err == nil && (!same(&got, &alone) || h.At != alone.At || h.Seq != alone.Seq || h.Kind != alone.Kind) {
				t.Fatalf("%q: %+v\n%+v", text, &got, &alone)
			}
		}
	})
}

// What the fast way reads, encoding/json reads the same.
func FuzzReadJSON(f *testing.F) {
	for _, l := range []*decisionlog.Line{full(), usual(), {Kind: decisionlog.Loaded, Files: []decisionlog.File{{Name: "n", Text: "t"}}}} {
		f.Add(written(l))
	}
	f.Add([]byte(`{"v":1,"time":"2026-11-23T00:00:00.000001Z","result":"allowed","descriptors":[{"entries":[["\ud800","` + "\xff" + `"]],"cost":-0,"result":"allowed"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var fast, slow decisionlog.Line
		errFast := fast.ReadJSON(text)
		errSlow := decisionlog.ReadAny(&slow, text)
		if (errFast == nil) != (errSlow == nil) {
			t.Fatalf("%v, %v", errFast, errSlow)
		}
		if errFast == nil && !same(&fast, &slow) {
			t.Fatalf("%+v\n%+v", &fast, &slow)
		}
	})
}

func BenchmarkReadJSON(b *testing.B) {
	text := written(usual())
	b.SetBytes(int64(len(text)))
	var l decisionlog.Line
	for b.Loop() {
		if err := l.ReadJSON(text); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}
