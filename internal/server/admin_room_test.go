package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/heaptest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// manyDomains has a server know 300 domains with 100 rules each.
func manyDomains(t testing.TB) func(*server.Options) {
	dir := t.TempDir()
	var rules strings.Builder
	for i := range 100 {
		fmt.Fprintf(&rules, "  - {key: a-key-of-some-length-%d, rate_limit: {requests: 10, period: 1m}}\n", i)
	}
	for i := range 300 {
		filetest.Write(t, dir, fmt.Sprintf("%d.yaml", i), fmt.Sprintf("domain: domain-%d\ndescriptors:\n%s", i, &rules))
	}
	return func(o *server.Options) {
		o.Live = config.NewLive(dir, o.Log)
		if err := o.Live.Reload(); err != nil {
			t.Fatal(err)
		}
	}
}

// Answers about rules are as long as the operator's file has it. 32 callers who ask
// for all domains and do not read make the daemon hold what request_memory allows,
// and more is refused.
func TestAnswersAboutRulesHoldBoundedMemory(t *testing.T) {
	const budget, callers = 32 << 20, 32
	d := start(t, oneLimit, manyDomains(t), func(o *server.Options) { o.Requests.Memory = budget })
	before := heaptest.InUse()
	responses := make([]*http.Response, callers)
	var failed atomic.Int64
	var asked sync.WaitGroup
	for i := range responses {
		asked.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
			var err error
			if responses[i], err = client.Get("http://" + d.srv.Address("admin") + "/admin/v1/domains"); err != nil {
				failed.Add(1)
			}
		})
	}
	asked.Wait()
	held, page := heaptest.InUse()-before, d.metrics()
	charged := page["ratelimitd_request_memory_bytes"]
	// Whoever holds the most while there is no room may be cut off.
	if cut := page["ratelimitd_connections_cut_total"]; float64(failed.Load()) > cut {
		t.Errorf("%d got no answer, and %v were cut off", failed.Load(), cut)
	}
	got := make(map[int]int)
	for _, r := range responses {
		if r != nil {
			got[r.StatusCode]++
			r.Body.Close()
		}
	}
	t.Logf("%d answers and %d refusals hold %d bytes; %.0f are charged", got[200], got[429], held, charged)
	if got[200] == 0 || got[429] == 0 || got[200]+got[429]+int(failed.Load()) != callers {
		t.Errorf("the codes were %v", got)
	}
	if held > budget || float64(held) > charged || charged > budget+callers*64<<10 {
		t.Errorf("%d bytes are held, and %.0f are charged of %d", held, charged, budget)
	}
}

// An answer that callers of gRPC would not read is refused before it is made.
func TestAnswersAboutRulesAreNoLongerThanCallersRead(t *testing.T) {
	t.Parallel()
	var rules strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&rules, "  - {key: user, value: %q, rate_limit: {requests: 10, period: 1m}}\n", fmt.Sprint(i, strings.Repeat("v", 5000)))
	}
	d := start(t, "domain: api\ndescriptors:\n"+rules.String())
	if _, err := d.admin(nil).GetRule(t.Context(), &adminv1.GetRuleRequest{Domain: "api"}); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "/rlconfig") {
		t.Errorf("over gRPC: %v", err)
	}
	if p := d.askAdmin("GET", "/rules?domain=api", "", ""); p.code != 429 || !strings.Contains(p.body, "/rlconfig") {
		t.Errorf("in JSON: %d %s", p.code, p.body)
	}
}
