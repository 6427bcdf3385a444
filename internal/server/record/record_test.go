package record_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/record"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

const recordLimits = `
domain: api
unmatched: deny
descriptors:
  - {key: user, rate_limit: {name: hour, algorithm: fixed_window, requests: 2, period: 1h}}
  - key: several
    rate_limits:
      - {name: second, algorithm: fixed_window, requests: 2, period: 1s}
      - {name: day, algorithm: gcra, requests: 3, period: 1h}
  - {key: shadow, shadow_mode: true, rate_limit: {requests: 0, period: 1h}}
  - {key: tenant, plan: free, plans: {free: {requests: 2, period: 1h, algorithm: fixed_window, name: hour}, pro: {requests: 9, period: 1h, algorithm: fixed_window, name: hour}}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: leased, rate_limit: {name: hour, algorithm: fixed_window, requests: 9, period: 1h, lease: 1s}}
`

// recorded is a sink that keeps the lines.
type recorded struct {
	mu    sync.Mutex
	lines []string
}

// Write implements record.Sink.
func (r *recorded) Write(line []byte, _ int64, _ bucket.SpanRef) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, string(line))
}

// take returns the lines since the last call.
func (r *recorded) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	r.lines = nil
	return lines
}

// ordered has the store in memory tell the order of decisions.
func ordered(t *testing.T, c *asynctest.Clock) func(*server.Options) {
	return func(o *server.Options) {
		s := memstore.New(memstore.Options{MaxKeys: 1000, Clock: c.Micros, Ordered: true})
		t.Cleanup(func() { s.Close() })
		o.Store = s
	}
}

func TestEachKindOfRequestIsRecorded(t *testing.T) {
	t.Parallel()
	var got recorded
	var a servertest.Assigned
	clock := servertest.NewClock()
	a.Table = assign.NewTable()
	a.Daemon = servertest.Start(t, recordLimits, servertest.Recording(&got), ordered(t, clock), func(o *server.Options) { o.Assigned, o.Now = a.Table, clock.Time })
	d := a.Daemon
	fingerprint := d.Live.Rules().Fingerprint()
	taken, own := servertest.Taking("user=bob:2"), servertest.Taking("user=frank")
	own.Descriptors[0].Numbers = &ratelimitv1.Numbers{Requests: 7, Period: durationpb.New(time.Minute)}
	response, schema := d.SendTake(taken), servertest.LineSchema(t)
	got.take()
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"allowed", func() { d.Ask("api", 1, "user=alice") },
			`"seq":2,"api":"grpc",LIMITS,"domain":"api","result":"allowed","descriptors":[{"entries":[["user","alice"]],"rule":"user","cost":1,"result":"allowed",` +
				`"limits":[{"name":"hour","result":"allowed","remaining":1,"reset_after_us":3589750000}]}]`},
		{"near", func() { d.Post(`{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"alice"}]}]}`) },
			`"seq":3,"api":"http",LIMITS,"domain":"api","result":"allowed","descriptors":[{"entries":[["user","alice"]],"rule":"user","cost":1,"result":"allowed",` +
				`"limits":[{"name":"hour","result":"near","remaining":0,"reset_after_us":3589750000}]}]`},
		{"denied", func() { d.Take("user=alice:3", "free=x") },
			`"seq":4,"api":"api_grpc",LIMITS,"domain":"api","result":"denied","descriptors":[{"entries":[["user","alice"]],"rule":"user","cost":3,"result":"denied",` +
				`"limits":[{"name":"hour","result":"denied","remaining":0,"retry_after_us":-1,"reset_after_us":3589750000}]},` +
				`{"entries":[["free","x"]],"rule":"free","cost":1,"result":"allowed"}]`},
		{"peek", func() { d.Take("user=carol:0") },
			`"seq":5,"api":"api_grpc",LIMITS,"domain":"api","result":"allowed","descriptors":[{"entries":[["user","carol"]],"rule":"user","cost":0,"result":"allowed",` +
				`"limits":[{"name":"hour","result":"peeked","remaining":2}]}]`},
		{"refund", func() {
			r := servertest.Request("api", 1, "user=alice")
			r.Descriptors[0].IsNegativeHits = true
			d.Send(r)
		},
			`"seq":6,"api":"grpc",LIMITS,"domain":"api","result":"allowed","descriptors":[{"entries":[["user","alice"]],"rule":"user","cost":-1,"result":"allowed",` +
				`"limits":[{"name":"hour","result":"allowed","remaining":1,"reset_after_us":3589750000}]}]`},
		{"of several limits one denies", func() { d.Take("several=x:3") },
			`"seq":7,"api":"api_grpc",LIMITS,"domain":"api","result":"denied","descriptors":[{"entries":[["several","x"]],"rule":"several","cost":3,"result":"denied",` +
				`"limits":[{"name":"second","result":"denied","remaining":2,"retry_after_us":-1},{"name":"day","result":"denied_by_other","remaining":3}]}]`},
		{"in shadow", func() { d.Ask("api", 1, "shadow=x") },
			`"seq":8,"api":"grpc",LIMITS,"domain":"api","result":"allowed","descriptors":[{"entries":[["shadow","x"]],"rule":"shadow","cost":1,"result":"shadowed",` +
				`"limits":[{"name":"token_bucket","result":"shadowed","remaining":0,"retry_after_us":-1}]}]`},
		{"own numbers", func() { d.Send(servertest.Overriding(t, 1, "user=dan", "7/MINUTE")) },
			`"seq":9,"api":"grpc",LIMITS,"domain":"api","result":"allowed","descriptors":[{"entries":[["user","dan"]],"rule":"user","cost":1,"result":"allowed",` +
				`"limits":[{"name":"override","result":"allowed","remaining":6,"reset_after_us":49750000,"numbers":{"algorithm":"fixed_window","requests":7,"period_us":60000000}}]}]`},
		{"assigned plan and numbers", func() {
			a.Says("tenant=acme", assign.Terms{Plan: "pro", Numbers: []assign.Numbers{{Limit: "hour", Requests: 20}}})
			d.Ask("api", 1, "tenant=acme")
		},
			`"seq":10,"api":"grpc",LIMITS,"domain":"api","result":"allowed","descriptors":[{"entries":[["tenant","acme"]],"rule":"tenant (plan pro)","plan":"pro","cost":1,"result":"allowed",` +
				`"limits":[{"name":"hour","result":"allowed","remaining":19,"reset_after_us":3589750000,"numbers":{"algorithm":"fixed_window","requests":20,"period_us":3600000000,"assigned":true}}]}]`},
		{"freed", func() {
			a.Says("user=erin", assign.Terms{Unlimited: true})
			d.Ask("api", 1, "user=erin")
		},
			`"api":"grpc",LIMITS,"domain":"api","result":"allowed","descriptors":[{"entries":[["user","erin"]],"rule":"user","unlimited":true,"cost":1,"result":"allowed"}]`},
		{"freed and with own numbers", func() { d.Send(servertest.Overriding(t, 1, "user=erin", "7/MINUTE")) },
			`"seq":11,"api":"grpc",LIMITS,"domain":"api","result":"allowed","descriptors":[{"entries":[["user","erin"]],"rule":"user","cost":1,"result":"allowed",` +
				`"limits":[{"name":"override","result":"allowed","remaining":6,"reset_after_us":49750000,"numbers":{"algorithm":"fixed_window","requests":7,"period_us":60000000}}]}]`},
		{"blocked", func() {
			a.Says("user=mallory", assign.Terms{Blocked: true})
			d.Ask("api", 1, "user=mallory")
		},
			`"api":"grpc",LIMITS,"domain":"api","result":"denied","descriptors":[{"entries":[["user","mallory"]],"rule":"user","cost":1,"result":"denied","refusal":"blocked",` +
				`"limits":[{"name":"blocked","result":"denied","remaining":0,"retry_after_us":-1}]}]`},
		{"unmatched", func() { d.Ask("api", 1, "usr=x") },
			`"api":"grpc",LIMITS,"domain":"api","result":"denied","descriptors":[{"entries":[["usr","x"]],"cost":1,"result":"denied","refusal":"unmatched",` +
				`"limits":[{"name":"unmatched","result":"denied","remaining":0,"retry_after_us":-1}]}]`},
		{"unknown domain", func() { d.Ask("other", 1, "usr=x") },
			`"api":"grpc",LIMITS,"domain":"other","result":"allowed","descriptors":[{"entries":[["usr","x"]],"cost":1,"result":"allowed"}]`},
		{"invalid", func() { _, _ = d.Try(&rlsv3.RateLimitRequest{Domain: "api"}) },
			`"api":"grpc","domain":"api","result":"error","code":"InvalidArgument"`},
		{"given back", func() {
			if err := d.GiveBack(taken, response); err != nil {
				t.Fatal(err)
			}
		},
			`"seq":12,"api":"api_grpc",LIMITS,"domain":"api","result":"allowed","descriptors":[{"entries":[["user","bob"]],"rule":"user","cost":2,"result":"allowed",` +
				`"limits":[{"name":"hour","result":"allowed","remaining":0,"taken_at":1767225610250000}]}]`},
		{"given back by own numbers", func() {
			response := d.SendTake(own)
			asynctest.Eventually(t, "the line of the take", func() bool { return len(got.take()) > 0 })
			if err := d.GiveBack(own, response); err != nil {
				t.Fatal(err)
			}
		},
			`"seq":14,"api":"api_grpc",LIMITS,"domain":"api","result":"allowed","descriptors":[{"entries":[["user","frank"]],"rule":"user","cost":1,"result":"allowed",` +
				`"limits":[{"name":"override","result":"allowed","remaining":0,"numbers":{"algorithm":"fixed_window","requests":7,"period_us":60000000},"taken_at":1767225610250000}]}]`},
		{"taken with an id", func() { d.TakeAs("one", "user=grace:2", "several=x:0") },
			`"seq":15,"api":"api_grpc",LIMITS,"domain":"api","id":"one","settle_within_us":3600000000,"result":"allowed","descriptors":[{"entries":[["user","grace"]],"rule":"user","cost":2,"result":"allowed",` +
				`"limits":[{"name":"hour","result":"near","remaining":0,"reset_after_us":3589750000}]},{"entries":[["several","x"]],"rule":"several","cost":0,"result":"allowed",` +
				`"limits":[{"name":"second","result":"peeked","remaining":2},{"name":"day","result":"peeked","remaining":3}]}]`},
		{"settled", func() { d.Settle("one", "user=grace:1", "several=x", "several=x:4") },
			`"seq":16,"api":"api_grpc",LIMITS,"domain":"api","id":"one","result":"allowed","descriptors":[{"entries":[["user","grace"]],"rule":"user","cost":1,"result":"allowed",` +
				`"limits":[{"name":"hour","result":"settled","remaining":1,"reset_after_us":3589750000,"returned":1,"takes":1}]},` +
				`{"entries":[["several","x"]],"rule":"several","cost":1,"kept":true,"result":"allowed"},{"entries":[["several","x"]],"rule":"several","cost":4,"result":"allowed",` +
				`"limits":[{"name":"second","result":"unknown","remaining":0},{"name":"day","result":"unknown","remaining":0}]}]`},
		{"a lease", func() {
			r := servertest.Taking("leased=x")
			r.Lease = 5
			d.SendTake(r)
		},
			`"seq":17,"api":"api_grpc",LIMITS,"domain":"api","result":"allowed","descriptors":[{"entries":[["leased","x"]],"rule":"leased","cost":5,"result":"allowed",` +
				`"limits":[{"name":"hour","result":"allowed","remaining":4,"reset_after_us":3589750000}]}]`},
		{"settled in vain", func() { _, _ = d.API().Settle(context.Background(), servertest.Settling("one", "user=grace")) },
			`"api":"api_grpc","domain":"api","id":"one","result":"error","code":"InvalidArgument","descriptors":[{"entries":[["user","grace"]],"cost":1,"result":"error"}]`},
		{"given back in vain", func() { _ = d.GiveBack(servertest.Taking("user=bob", "user=x"), response) },
			`"api":"api_grpc",LIMITS,"domain":"api","result":"error","code":"FailedPrecondition","descriptors":[{"entries":[["user","bob"]],"rule":"user","cost":1,"result":"error"},` +
				`{"entries":[["user","x"]],"rule":"user","cost":1,"result":"error"}]`},
	} {
		step.do()
		var line []string
		asynctest.Eventually(t, "a line", func() bool { line = append(line, got.take()...); return len(line) > 0 })
		kind := ""
		switch {
		case strings.HasPrefix(step.name, "given back"):
			kind = `"kind":"give_back",`
		case strings.HasPrefix(step.name, "settled"):
			kind = `"kind":"settle",`
		}
		want := `{"v":1,` + kind + `"time":"2026-01-01T00:00:10.250000Z",` + strings.Replace(step.want, "LIMITS", `"limits":"`+fingerprint+`"`, 1) + "}\n"
		text := strings.Join(line, "")
		if text != want {
			t.Errorf("%s: got\n%swant\n%s", step.name, text, want)
		}
		if err := servertest.Validate(schema, text); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
}

// Every field that a line may have is in the schema.
func TestTheSchemaNamesEveryField(t *testing.T) {
	t.Parallel()
	limit := decisionlog.Limit{
		Name: "hour", Result: "denied", At: 1, Seq: 2, Remaining: 3, RetryAfter: time.Second, ResetAfter: time.Second, Paused: time.Second, Degraded: true, Remembered: true, Released: "slot", Renewed: true,
		Numbers: &decisionlog.Numbers{Algorithm: "gcra", Requests: 1, Burst: 1, Period: time.Second, BlockFor: time.Second, Calendar: "month", Starts: "15", TimeZone: "UTC", Assigned: true, Apart: true}, TakenAt: 1,
		Returned: 1, Added: 2, Takes: 3,
	}
	decision := decisionlog.Line{
		Kind: decisionlog.GivenBack, At: 5, Seq: 1, API: "grpc", Limits: "00112233445566aa", Domain: "d", Result: decisionlog.Denied, Code: "Unavailable",
		ID: "one", Caller: "shop", SettleWithin: time.Hour,
		Degraded: true, TraceID: strings.Repeat("0", 32), Lossy: true,
		Descriptors: []decisionlog.Descriptor{{
			Entries: []bucket.Entry{{Key: "k", Value: "v"}}, Rule: "k", Plan: "p", Unlimited: true, Cost: 1, Reports: true, Kept: true, Doubtful: true,
			Result: decisionlog.Shadowed, Refusal: "blocked", Limits: []decisionlog.Limit{limit},
		}},
	}
	loaded := decisionlog.Line{
		Kind: decisionlog.Loaded, At: 5, Limits: "00112233445566aa", Files: []decisionlog.File{{Name: "a.yaml", Text: "domain: a"}},
		Settings: &decisionlog.Settings{ShadowMode: true, QuotaMode: true, Lenient: true, MergeDomains: true, DenyUnmatched: true, MaxClockSkew: time.Second,
			Bounds: &decisionlog.Bounds{PerSubject: 10, BytesPerSecond: 1 << 20, SampleAllowed: 0.1, SampleDenied: 1}},
	}
	lost := decisionlog.Line{Kind: decisionlog.Lost, At: 5, Lost: 1}
	all := decision
	all.Settings, all.Files, all.Lost = loaded.Settings, loaded.Files, lost.Lost
	for _, name := range zeroFields(reflect.ValueOf(all), "Line") {
		t.Errorf("%s is not set here", name)
	}
	schema := servertest.LineSchema(t)
	lines := []decisionlog.Line{decision, loaded, lost}
	for _, a := range bucket.Algorithms() {
		by := limit
		by.Numbers = &decisionlog.Numbers{Algorithm: a.String()}
		asked := decision.Descriptors[0]
		asked.Limits = []decisionlog.Limit{by}
		of := decision
		of.Descriptors = []decisionlog.Descriptor{asked}
		lines = append(lines, of)
	}
	for _, l := range lines {
		if err := servertest.Validate(schema, string(l.AppendJSON(nil))); err != nil {
			t.Error(err)
		}
	}
}

// zeroFields returns the fields that are zero in a value, and in what it holds.
func zeroFields(v reflect.Value, name string) (names []string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return zeroFields(v.Elem(), name)
		}
	case reflect.Slice:
		if v.Len() > 0 {
			return zeroFields(v.Index(0), name)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			names = append(names, zeroFields(v.Field(i), name+"."+v.Type().Field(i).Name)...)
		}
		return names
	}
	if v.IsZero() {
		return []string{name}
	}
	return nil
}

// The schema is not one that all lines have.
func TestTheSchemaRefusesOtherLines(t *testing.T) {
	t.Parallel()
	schema := servertest.LineSchema(t)
	text, err := os.ReadFile("../../../docs/decisions.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(text), "```json\n")
	shown, _, _ = strings.Cut(shown, "\n```")
	if err := servertest.Validate(schema, shown); err != nil {
		t.Errorf("what the page shows: %v", err)
	}
	for old, other := range map[string]string{
		`"v":1`: `"v":2`, `"api":"grpc"`: `"api":"udp"`, `"cost":1,`: ``, `"remaining":0,`: ``, `"result":"denied_by_other"`: `"result":"maybe"`,
		`["path","/x"]`: `["path"]`, `.000001Z`: `Z`, `"domain":"api","result":"denied"`: `"domain":"api"`,
		`"domain":`: `"domains":`, `"plan":`: `"planned":`, `"remaining":8112`: `"remaining":8112,"remains":1`,
	} {
		if !strings.Contains(shown, old) {
			t.Fatalf("the page shows nothing with %s", old)
		}
		if servertest.Validate(schema, strings.Replace(shown, old, other, 1)) == nil {
			t.Errorf("it takes %s for %s", other, old)
		}
	}
}

// A request that servers may read in several ways says so of each reading.
func TestDoubtIsRecorded(t *testing.T) {
	t.Parallel()
	var got recorded
	d := servertest.Start(t, servertest.AuthLimits, servertest.Recording(&got), servertest.WithAuth(t, servertest.AuthFile("caddy", "key: path, from: path, prefixes: [/api, /api/v1]")))
	for uri, readings := range map[string]int{"/api/x": 0, "/api//v1": 2} {
		d.Auth("127.0.0.1", "GET", "n", "X-Forwarded-Uri: "+uri)
		var text string
		asynctest.Eventually(t, "a line", func() bool { text += strings.Join(got.take(), ""); return text != "" })
		if n := strings.Count(text, `"cost":1,"doubtful":true,`); n != readings {
			t.Errorf("%s: %d doubtful readings: %s", uri, n, text)
		}
		if err := servertest.Validate(servertest.LineSchema(t), text); err != nil {
			t.Error(err)
		}
	}
}

func TestAFailureIsRecorded(t *testing.T) {
	t.Parallel()
	var got recorded
	d := servertest.Start(t, recordLimits, servertest.Recording(&got), func(o *server.Options) {
		o.Store = &servertest.FakeStore{OnTake: func(context.Context, []bucket.Hit, []bucket.Decision) error { return errors.New("away") }}
	})
	_, _ = d.Try(servertest.Request("api", 1, "user=alice"))
	line := strings.Join(got.take(), "")
	if want := `"result":"error","code":"Unavailable","descriptors":[{"entries":[["user","alice"]],"rule":"user","cost":1,"result":"error"}]}` + "\n"; !strings.HasSuffix(line, want) {
		t.Errorf("%s", line)
	}
}

func TestValuesAreHashed(t *testing.T) {
	t.Parallel()
	var got, other recorded
	rpc := servertest.NewRPC(t, recordLimits, servertest.Recording(&got, func(o *record.Options) { o.HashKey = []byte("0123456789abcdef") }))
	answer(t, rpc, servertest.Request("api", 1, "user=alice,user=alice", "route=alice"), servertest.Request("api", 1, "user=alice"))
	text := strings.Join(got.take(), "")
	if strings.Contains(text, "alice") {
		t.Errorf("the value is there: %s", text)
	}
	// printf 'user\0alice' | openssl dgst -sha256 -hmac 0123456789abcdef
	if n := strings.Count(text, `["user","h:69667e0df153a0f2"]`); n != 3 {
		t.Errorf("%d of 3 are the hash of key and value: %s", n, text)
	}
	rpc = servertest.NewRPC(t, recordLimits, servertest.Recording(&other, func(o *record.Options) { o.HashKey = []byte("another key of 16") }))
	answer(t, rpc, servertest.Request("api", 1, "user=alice"))
	if strings.Contains(text, strings.SplitAfter(strings.Join(other.take(), ""), `["user","`)[1][:18]) {
		t.Error("another key makes the same hash")
	}
}

func answer(t *testing.T, rpc servertest.RPC, requests ...*rlsv3.RateLimitRequest) {
	t.Helper()
	for _, r := range requests {
		_, _ = rpc.ShouldRateLimit(t.Context(), r)
	}
}

func TestSamples(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		allowed, denied float64
		min, max        int // lines
	}{{0, 0, 0, 0}, {1, 0, 2, 2}, {0, 1, 998, 998}, {1, 0.5, 300, 700}} {
		var got recorded
		rpc := servertest.NewRPC(t, recordLimits, servertest.Recording(&got, func(o *record.Options) { o.Allowed, o.Denied = c.allowed, c.denied }))
		for range 1000 {
			answer(t, rpc, servertest.Request("api", 1, "user=alice"))
		}
		if n := len(got.take()); n < c.min || n > c.max {
			t.Errorf("%+v: %d lines", c, n)
		}
	}
}

// However often a subject asks, and whatever it sends beside what denies it, there are
// so many lines of it in a second.
func TestLinesForASubjectAreThinned(t *testing.T) {
	t.Parallel()
	var got recorded
	thinned := prometheus.NewCounter(prometheus.CounterOpts{Name: "thinned"})
	clock := servertest.NewClock()
	rpc := servertest.NewRPC(t, recordLimits, func(o *server.Options) { o.Now = clock.Time }, servertest.Recording(&got, func(o *record.Options) { o.PerSubject, o.Thinned = 5, thinned }))
	answer(t, rpc, servertest.Request("api", 2, "user=alice"))
	got.take()
	for second := range 3 {
		for i := range 100 {
			answer(t, rpc, servertest.Request("api", 1, "user=alice", fmt.Sprint("free=", i)))
		}
		answer(t, rpc, servertest.Request("api", 1, "user=bob"))
		want := 6
		if second == 0 {
			want-- // it had one when it was allowed
		}
		if n := len(got.take()); n < 5 || n > want+1 {
			t.Errorf("second %d: %d lines, want %d", second, n, want)
		}
		clock.Move(time.Second)
	}
	if n := testutil.ToFloat64(thinned); n < 280 {
		t.Errorf("%v are counted as thinned", n)
	}
}
