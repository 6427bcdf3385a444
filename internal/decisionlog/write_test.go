package decisionlog_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
)

func TestLinesLookAsTheSchemaSays(t *testing.T) {
	t.Parallel()
	const at = 1795392000000001
	for _, c := range []struct {
		line decisionlog.Line
		want string
	}{
		{decisionlog.Line{At: at}, `{"v":1,"time":"2026-11-23T00:00:00.000001Z","result":"allowed"}`},
		{decisionlog.Line{
			At: at, Seq: 7, API: "grpc", Limits: "00112233445566aa", Domain: "api", Result: decisionlog.Denied, Code: "Unavailable", Degraded: true,
			TraceID: "0af7651916cd43dd8448eb211c80319c",
			Descriptors: []decisionlog.Descriptor{{
				Entries: []bucket.Entry{{Key: "tenant", Value: "acme"}, {Key: "path", Value: "/x"}}, Rule: "tenant / path=/x", Plan: "pro",
				Unlimited: true, Cost: 1, Reports: true, Doubtful: true, Result: decisionlog.Denied, Refusal: "blocked",
				Limits: []decisionlog.Limit{{
					Name: "second", Result: "denied", At: at + 1, Seq: 3, RetryAfter: 120 * time.Millisecond, ResetAfter: 500 * time.Millisecond, Paused: 120 * time.Millisecond,
					Degraded: true, Remembered: true,
					Numbers: &decisionlog.Numbers{Algorithm: "token_bucket", Requests: 5, Period: time.Second, Burst: 5, Assigned: true},
				}, {Name: "month", Result: "allowed", At: at, Seq: 7, Remaining: 3, RetryAfter: bucket.Never}},
			}},
		}, `{"v":1,"time":"2026-11-23T00:00:00.000001Z","seq":7,"api":"grpc","limits":"00112233445566aa","domain":"api","result":"denied",` +
			`"code":"Unavailable","degraded":true,"trace_id":"0af7651916cd43dd8448eb211c80319c","descriptors":[{"entries":[["tenant","acme"],["path","/x"]],` +
			`"rule":"tenant / path=/x","plan":"pro","unlimited":true,"cost":1,"reports":true,"doubtful":true,"result":"denied","refusal":"blocked","limits":[` +
			`{"name":"second","result":"denied","at":1795392000000002,"seq":3,"remaining":0,"retry_after_us":120000,"reset_after_us":500000,"paused_us":120000,` +
			`"degraded":true,"remembered":true,"numbers":{"algorithm":"token_bucket","requests":5,"period_us":1000000,"burst":5,"assigned":true}},` +
			`{"name":"month","result":"allowed","remaining":3,"retry_after_us":-1}]}]}`},
		{decisionlog.Line{Kind: decisionlog.Loaded, At: at, Limits: "00112233445566aa", Files: []decisionlog.File{{Name: "api.yaml", Text: "domain: api\n"}, {}},
			Settings: &decisionlog.Settings{ShadowMode: true, DenyUnmatched: true, MaxClockSkew: time.Second}},
			`{"v":1,"kind":"limits","time":"2026-11-23T00:00:00.000001Z","limits":"00112233445566aa",` +
				`"settings":{"shadow_mode":true,"unmatched":"deny","max_clock_skew_us":1000000},"files":[{"name":"api.yaml","text":"domain: api\n"},{}]}`},
		{decisionlog.Line{Kind: decisionlog.GivenBack, At: at, API: "api_grpc", Domain: "api", Descriptors: []decisionlog.Descriptor{{
			Entries: []bucket.Entry{{Key: "a"}}, Rule: "a", Cost: 5, Limits: []decisionlog.Limit{{Name: "second", Result: "allowed", TakenAt: at - 5}},
		}}},
			`{"v":1,"kind":"give_back","time":"2026-11-23T00:00:00.000001Z","api":"api_grpc","domain":"api","result":"allowed","descriptors":[` +
				`{"entries":[["a",""]],"rule":"a","cost":5,"result":"allowed","limits":[{"name":"second","result":"allowed","remaining":0,"taken_at":1795391999999996}]}]}`},
		{decisionlog.Line{Kind: decisionlog.Settled, At: at, API: "api_grpc", Domain: "api", ID: "one", Caller: "shop", Descriptors: []decisionlog.Descriptor{{
			Entries: []bucket.Entry{{Key: "a"}}, Cost: 5, Limits: []decisionlog.Limit{{Name: "second", Result: "settled", Returned: 3, Added: 4, Takes: 1}},
		}, {Cost: 1, Kept: true}}},
			`{"v":1,"kind":"settle","time":"2026-11-23T00:00:00.000001Z","api":"api_grpc","domain":"api","id":"one","caller":"shop","result":"allowed","descriptors":[` +
				`{"entries":[["a",""]],"cost":5,"result":"allowed","limits":[{"name":"second","result":"settled","remaining":0,"returned":3,"added":4,"takes":1}]},` +
				`{"cost":1,"kept":true,"result":"allowed"}]}`},
		{decisionlog.Line{At: at, Domain: "a\xffb\x00\x1f\"\\\n\u2028ü\x7f\u009b\u202e\U000e0041語"},
			`{"v":1,"time":"2026-11-23T00:00:00.000001Z","domain":"a` + "\uFFFD" + `b\u0000\u001f\"\\\n\u2028ü\u007f\u009b\u202e\udb40\udc41語","result":"allowed","lossy":true}`},
	} {
		if got := string(c.line.AppendJSON(nil)); strings.ReplaceAll(got, `\n`, "\n") != strings.ReplaceAll(c.want, `\n`, "\n") {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
	}
}

func TestTimesHaveOneLength(t *testing.T) {
	t.Parallel()
	for _, at := range []int64{0, -1, 1, 999_999, 1795392000000001, 1 << 62, -1 << 62, 4102444800000000, 1709164800000000} {
		l := decisionlog.Line{At: at}
		_, got, _ := strings.Cut(string(l.AppendJSON(nil)), `"time":"`)
		got, _, _ = strings.Cut(got, `"`)
		read, err := time.Parse("2006-01-02T15:04:05.000000Z", got)
		if err != nil || len(got) != 27 {
			t.Errorf("%d: %q: %v", at, got, err)
		}
		if at > -1<<50 && at < 1<<50 && read.UnixMicro() != at {
			t.Errorf("%d: %q", at, got)
		}
	}
}

// lineOf makes a line of what a fuzzer chose.
func lineOf(text []byte, at int64, seq uint32, n int64) decisionlog.Line {
	texts := strings.Split(string(text), "\x00")
	take := func(i int) string { return texts[i%len(texts)] }
	bits := binary.LittleEndian.AppendUint64(nil, uint64(n))
	l := decisionlog.Line{
		Kind: decisionlog.Kind(bits[0] % 4), At: at, Seq: seq, API: take(0), Limits: take(1), Domain: take(2), Result: decisionlog.Result(bits[1] % 4),
		Code: take(3), Degraded: bits[2]&1 != 0, TraceID: take(4),
		ID: take(5), Caller: take(6), SettleWithin: time.Duration(n),
	}
	for i := range int(bits[3] % 3) {
		d := decisionlog.Descriptor{Rule: take(i), Plan: take(i + 1), Cost: n, Reports: bits[2]&2 != 0, Unlimited: bits[2]&64 != 0, Doubtful: bits[2]&128 != 0, Kept: bits[2]&8 != 0, Result: decisionlog.Result(bits[1] % 4), Refusal: take(i + 2)}
		for j := range int(bits[4] % 4) {
			d.Entries = append(d.Entries, bucket.Entry{Key: take(i + j), Value: take(i + j + 1)})
		}
		for j := range int(bits[5] % 3) {
			limit := decisionlog.Limit{
				Name: take(i + j), Result: take(j), At: at + int64(j), Seq: seq * uint32(j), Remaining: n, RetryAfter: time.Duration(n), ResetAfter: time.Duration(-n),
				Degraded: bits[2]&4 != 0, Remembered: bits[2]&8 != 0, TakenAt: n, Returned: n, Added: -n, Takes: n / 2, Renewed: bits[6]&1 != 0,
			}
			if bits[6]&2 != 0 {
				limit.RetryAfter, limit.Released = bucket.Unknown, bucket.ReleasedTooLate.String()
			}
			if bits[2]&16 != 0 {
				limit.Numbers = &decisionlog.Numbers{Algorithm: take(j), Requests: n, Burst: int64(seq), Period: time.Duration(n), Assigned: bits[2]&32 != 0}
			}
			d.Limits = append(d.Limits, limit)
		}
		l.Descriptors = append(l.Descriptors, d)
	}
	if b := bits[7]; b&1 != 0 {
		l.Settings = &decisionlog.Settings{
			ShadowMode: b&2 != 0, QuotaMode: b&4 != 0, Lenient: b&8 != 0, MergeDomains: b&16 != 0, DenyUnmatched: b&32 != 0,
			MaxClockSkew: time.Duration(b) * time.Second,
		}
	}
	for i := range int(bits[6] % 3) {
		l.Files = append(l.Files, decisionlog.File{Name: take(i), Text: take(i + 1)})
	}
	return l
}

func BenchmarkAppendJSON(b *testing.B) {
	l := decisionlog.Line{
		At: 1795392000000001, Seq: 7, API: "grpc", Limits: "00112233445566aa", Domain: "api", Result: decisionlog.Denied,
		Descriptors: []decisionlog.Descriptor{{
			Entries: []bucket.Entry{{Key: "user", Value: "alice"}, {Key: "route", Value: "/orders"}}, Rule: "user / route", Cost: 1, Result: decisionlog.Denied,
			Limits: []decisionlog.Limit{{Name: "second", Result: "denied", RetryAfter: time.Second, ResetAfter: time.Minute}},
		}},
	}
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		out = l.AppendJSON(out[:0])
	}
	b.SetBytes(int64(len(out)))
}
