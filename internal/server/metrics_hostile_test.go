package server_test

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// sameHash returns two texts that have the same xxHash after the prefix, which is
// how Prometheus' library tells one series from another. Nobody has to search long
// for them.
func sameHash(prefix string) (a, b string) {
	const p1, p2, stripe = 11400714785074694791, 14029467366897019727, 32
	const digits = "abcdefghijklmnopqrstuvwxyz"
	inverse := uint64(1) // of p2, modulo 2^64
	for range 6 {
		inverse *= 2 - p2*inverse
	}
	round := func(acc, lane uint64) uint64 { return bits.RotateLeft64(acc+lane*p2, 31) * p1 }
	pad := strings.Repeat("x", (stripe-len(prefix)%stripe)%stripe)
	acc, all := uint64(6983438078262162902), prefix+pad // p1 + p2
	for ; len(all) > 0; all = all[stripe:] {
		acc = round(acc, binary.LittleEndian.Uint64([]byte(all)))
	}
	random := rand.New(rand.NewPCG(1, 2))
	word := func() uint64 {
		var text [8]byte
		for i := range text {
			text[i] = digits[random.IntN(len(digits))]
		}
		return binary.LittleEndian.Uint64(text[:])
	}
	text := func(first, second uint64) string {
		var t []byte
		for _, lane := range []uint64{first, second} {
			t = append(binary.LittleEndian.AppendUint64(append(t, ""...), lane), strings.Repeat("x", stripe-8)...)
		}
		return pad + string(t)
	}
	for {
		first, other, second := word(), word(), word()
		if last := second + (round(acc, first)-round(acc, other))*inverse; last&0x8080808080808080 == 0 {
			return text(first, second), text(other, last)
		}
	}
}

// Whoever chooses values of value_to_metric could else hide those of others, or all
// metrics: the client library takes the one of the same hash for a mistake.
func TestSeriesOfTheSameHashAreAllShown(t *testing.T) {
	t.Parallel()
	separated := func(words ...string) string { return strings.Join(words, "\xff") + "\xff" }
	for _, prefix := range []string{
		strings.TrimSuffix(separated("ratelimitd_decisions_total", "domain", "api", "result", "allowed", "rule", "user", "value", ""), "\xff"),
		strings.TrimSuffix(separated("ratelimit_service_rate_limit_total_hits", "domain", "api", "key1", "user_"), "\xff"),
	} {
		a, b := sameHash(prefix)
		if a == b || xxhash.Sum64String(prefix+a) != xxhash.Sum64String(prefix+b) {
			t.Fatalf("%q and %q have not the same hash", a, b)
		}
		d := servertest.Start(t, "domain: api\ndescriptors: [{key: user, value_to_metric: true, rate_limit: {unit: hour, requests_per_unit: 9}}]\n", likeEnvoyproxy)
		d.Ask("api", 1, "user="+a)
		d.Ask("api", 1, "user="+b)
		for range 3 {
			d.WantMetrics(map[string]float64{`ratelimitd_requests_total{api="grpc",code="OK",outcome="allowed"}`: 2})
			for _, value := range []string{escaped(a), escaped(b)} {
				d.WantMetrics(map[string]float64{
					fmt.Sprintf("ratelimitd_decisions_total{domain=\"api\",result=\"allowed\",rule=\"user\",value=\"%s\"}", value): 1,
					fmt.Sprintf("ratelimit_service_rate_limit_total_hits{domain=\"api\",key1=\"user_%s\",key2=\"\"}", value):       1,
				})
			}
		}
		if lines := d.Log.Lines("level=ERROR"); len(lines) > 0 {
			t.Errorf("%d lines: %.2000q", len(lines), lines)
		}
	}
}

// escaped is a value of a label as a page has it.
func escaped(value string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(value)
}

// What a caller sends as a value is one label on one line, or among the others.
func TestValuesOfCallersKeepThePageWhole(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, `
domain: api
descriptors:
  - {key: user, value_to_metric: true, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: all, descriptors: [{key: path, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 9}}]}
`, likeEnvoyproxy)
	for _, value := range []string{"a\nratelimitd_panics_total 7", `"} 1`, `\`, "a\\nb", "\x00\x7f\r", "\u2028", "other", strings.Repeat("x", 3000)} {
		d.Ask("api", 1, "user="+value, "all="+value+",path="+value)
	}
	// A value that is no UTF-8, which d.ask cannot send.
	var answer []byte
	if err := d.Conn.Invoke(t.Context(), rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, []byte("\n\x03api\x12\x0c\n\x0a\n\x04user\x12\x02\xff\xfe"), &answer, grpc.ForceCodec(servertest.RawCodec{})); err != nil {
		t.Error(err)
	}
	if _, err := d.Try(servertest.Request("api", 1, "user="+strings.Repeat("x", 1<<20))); err == nil {
		t.Error("a value of 1 MiB is taken")
	}
	page := d.Metrics()
	for series, want := range map[string]float64{
		`ratelimitd_panics_total`: 0,
		`ratelimitd_decisions_total{domain="api",result="allowed",rule="user",value="a\nratelimitd_panics_total 7"}`: 1,
		`ratelimitd_decisions_total{domain="api",result="allowed",rule="user",value="\"} 1"}`:                        1,
		`ratelimitd_decisions_total{domain="api",result="allowed",rule="user",value="a\\nb"}`:                        1,
		`ratelimitd_decisions_total{domain="api",result="allowed",rule="user",value="other"}`:                        1,
		`ratelimitd_decisions_total{domain="api",others="true",result="allowed",rule="user",value=""}`:               2,
		`ratelimit_service_rate_limit_total_hits{domain="api",key1="user_a\nratelimitd_panics_total 7",key2=""}`:     1,
		`ratelimit_service_rate_limit_total_hits{domain="api",key1="user_other",key2=""}`:                            1,
		`ratelimit_service_rate_limit_total_hits{domain="api",key1="user|other",key2=""}`:                            2,
		`ratelimit_service_rate_limit_total_hits{domain="api",key1="all_\"} 1",key2="path_\"} 1"}`:                   1,
		`ratelimit_service_rate_limit_total_hits{domain="api",key1="all_other",key2="path_other"}`:                   1,
		`ratelimit_service_rate_limit_total_hits{domain="api",key1="all|other",key2="path|other"}`:                   1,
	} {
		if got, ok := page[series]; !ok || got != want {
			t.Errorf("%s: %v, %t, want %v", series, got, ok, want)
		}
	}
}

// Rules come and go while their series are read; what stays never falls.
func TestScrapesBesideReloads(t *testing.T) {
	t.Parallel()
	limits := func(i int) string {
		text := "domain: api\ndescriptors:\n- {key: stays, value_to_metric: true, rate_limit: {unit: hour, requests_per_unit: 1000000}}\n"
		return text + fmt.Sprintf("- {key: a, value: 'b%c', rate_limit: {unit: hour, requests_per_unit: 1000000}}\n- {key: a, value: b_, rate_limit: {unit: hour, requests_per_unit: 1000000}}\n", ":|"[i%2])
	}
	d := servertest.Start(t, limits(0), likeEnvoyproxy)
	done := make(chan struct{})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
					_, _ = d.Server.RPC().ShouldRateLimit(t.Context(), servertest.Request("api", 1, fmt.Sprintf("stays=%d", i%5), "a=b:", "a=b|", "a=b_"))
				}
			}
		})
		all.Go(func() {
			last := make(map[string]float64)
			for {
				select {
				case <-done:
					return
				default:
				}
				w := httptest.NewRecorder()
				d.Server.Admin().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
				for series, n := range servertest.Samples(t, w.Body.String()) {
					if !strings.HasPrefix(series, "ratelimit_service_rate_limit_") {
						continue
					}
					if n < last[series] {
						t.Errorf("%s fell from %v to %v", series, last[series], n)
					}
					last[series] = n
				}
			}
		})
	}
	for i := range 40 {
		d.Reload(limits(i + 1))
		time.Sleep(2 * time.Millisecond)
	}
	close(done)
	all.Wait()
}
