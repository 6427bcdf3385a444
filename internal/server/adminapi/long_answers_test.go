package adminapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket/heaptest"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
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
		o.Live = limitsfile.NewLive(dir, o.Log)
		if err := o.Live.Reload(); err != nil {
			t.Fatal(err)
		}
	}
}

// Answers about rules are as long as the operator's file has it. 16 callers who ask for all
// domains in JSON and do not read make the daemon hold a few of them, all get their
// answers.
func TestAnswersAboutRulesHoldBoundedMemory(t *testing.T) {
	const callers, maxHeld = 16, 8 << 20
	d := servertest.Start(t, servertest.OneLimit, manyDomains(t))
	before := heaptest.InUse()
	responses := make([]*http.Response, callers)
	var asked sync.WaitGroup
	for i := range responses {
		asked.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: servertest.Patience}
			var err error
			// On a busy machine all places may be taken for 10 s, and a caller be cut for
			// others before it has read that there is an answer.
			for range 10 {
				responses[i], err = client.Get("http://" + d.Server.Address("admin") + "/admin/v1/domains")
				if err == nil && responses[i].StatusCode == http.StatusOK {
					break
				} else if err == nil {
					responses[i].Body.Close()
				}
			}
			if err != nil || responses[i].StatusCode != 200 {
				t.Errorf("%v, error %v", responses[i], err)
			}
		})
	}
	asked.Wait()
	held := heaptest.InUse() - before
	for _, r := range responses {
		if r != nil {
			r.Body.Close()
		}
	}
	if held > maxHeld {
		t.Errorf("%d answers hold %d bytes", callers, held)
	}
}

// An answer that callers would not read is refused before it is made.
func TestAnswersAboutRulesAreNoLongerThanCallersRead(t *testing.T) {
	t.Parallel()
	var rules strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&rules, "  - {key: user, value: %q, rate_limit: {requests: 10, period: 1m}}\n", fmt.Sprint(i, strings.Repeat("v", 5000)))
	}
	d := servertest.Start(t, "domain: api\ndescriptors:\n"+rules.String())
	if _, err := d.Admin(nil).GetRule(t.Context(), &adminv1.GetRuleRequest{Domain: "api"}); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "/rlconfig") {
		t.Errorf("over gRPC: %v", err)
	}
	if p := d.AskAdmin("GET", "/rules?domain=api", "", ""); p.Code != 429 || !strings.Contains(p.Body, "/rlconfig") {
		t.Errorf("in JSON: %d %s", p.Code, p.Body)
	}
}
