package xds_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/config/xds"
)

func TestTheTypeIsThatOfTheServer(t *testing.T) {
	if xds.TypeURL != resource.RateLimitConfigType {
		t.Errorf("%s, and the server has %s", xds.TypeURL, resource.RateLimitConfigType)
	}
}

func TestTheFirstRequestAsksForAllResourcesOfANode(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	follow(t, xds.Options{Address: m.address, NodeMetadata: map[string]string{"zone": "a"}, Headers: map[string]string{"x-token": "b:c"}})
	m.set("1", domain("d", 5))
	asynctest.Eventually(t, "two requests", func() bool { return len(m.asked()) == 2 })
	for i, r := range m.asked() {
		if r.GetNode().GetId() != nodeID || r.GetNode().GetMetadata().GetFields()["zone"].GetStringValue() != "a" || r.GetTypeUrl() != xds.TypeURL || len(r.GetResourceNames()) != 0 {
			t.Errorf("request %d: %v", i, r.DiscoveryRequest)
		}
	}
	if r := m.asked()[0]; r.GetVersionInfo() != "" || r.GetResponseNonce() != "" {
		t.Errorf("the first claims a version: %v", r.DiscoveryRequest)
	}
	if got := m.headers[0].Get("x-token"); !slices.Equal(got, []string{"b:c"}) {
		t.Errorf("headers %v", m.headers[0])
	}
}

func TestAServerWithoutASnapshotIsWaitedForAndTold(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	f := follow(t, xds.Options{Address: m.address, Silence: 50 * time.Millisecond})
	f.wantLog("the server is connected and has sent no configuration")
	f.wantMetric("ratelimitd_xds_connected", "", is(1))
	if page := f.statusPage(); f.live.Rules() != nil || !strings.Contains(page, ": connected since ") || !strings.Contains(page, "has none yet, or none for this node id") {
		t.Errorf("rules %v, %s", f.live.Rules(), page)
	}
	m.set("1", domain("d", 5))
	f.wantRequests("d", 5)
	if page := f.statusPage(); strings.Contains(page, "none for this node id") || !strings.Contains(page, "# version 1 accepted ") {
		t.Error(page)
	}
}

func TestAGoodSnapshotIsAcceptedAndInForce(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	m.set("1", domain("a", 5), domain("b", 6))
	f := follow(t, xds.Options{Address: m.address})
	f.wantRequests("a", 5)
	f.wantRequests("b", 6)
	f.wantAnswers(m, `ACK "1"`)
	if f.metric("ratelimitd_xds_last_accepted_timestamp_seconds", "") == 0 || f.metric("ratelimitd_xds_responses_total", "accepted") != 1 {
		t.Error("metrics do not tell of it")
	}
	m.set("2", domain("b", 7)) // a is gone
	f.wantRequests("b", 7)
	if f.live.Rules().HasDomain("a") {
		t.Error("a domain that is missing is in force")
	}
	m.set("3") // all are gone
	asynctest.Eventually(t, "no domain", func() bool { return len(f.live.Rules().Domains()) == 0 })
	f.wantAnswers(m, `ACK "1"`, `ACK "2"`, `ACK "3"`)
}

func TestABadSnapshotIsRefusedTwiceAndNoMore(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	m.set("1", domain("d", 5))
	f := follow(t, xds.Options{Address: m.address})
	f.wantAnswers(m, `ACK "1"`)
	second := domain("d", 8)
	second.Name = "e"
	m.set("2", domain("d", 7), second)
	f.wantAnswers(m, `ACK "1"`, `NACK at "1"`, `NACK at "2"`)
	// A storm would show by now: the server answers a refusal within a millisecond.
	time.Sleep(time.Second)
	f.wantAnswers(m, `ACK "1"`, `NACK at "1"`, `NACK at "2"`)
	f.wantRequests("d", 5)
	const why = `resource e: domain: found the domain "d" again, which is also in resource d; allowed: each domain once, unless limits.merge_domains is true`
	if detail := m.lastDetail(); detail != why {
		t.Errorf("the server is told\n%s", detail)
	}
	if page := f.statusPage(); !strings.Contains(page, "# version 2 refused ") || !strings.Contains(page, "#   "+why) || !strings.Contains(page, "# version 1 accepted ") {
		t.Error(page)
	}
	if f.metric("ratelimitd_xds_responses_total", "rejected") != 2 || f.log.Count(`level=ERROR msg="limits not loaded`) != 1 {
		t.Errorf("%v refused\n%s", f.metric("ratelimitd_xds_responses_total", "rejected"), f.log.String())
	}
	m.set("3", domain("d", 9))
	f.wantRequests("d", 9)
	f.wantAnswers(m, `ACK "1"`, `NACK at "1"`, `NACK at "2"`, `ACK "3"`)
	if page := f.statusPage(); strings.Contains(page, "refused") {
		t.Error(page)
	}
}

func TestAllErrorsAreToldInTheOrderOfTheNames(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	bad := domain("b", 5)
	bad.Descriptors[0].RateLimit.Unit = 99
	worse := domain("a", 5)
	worse.Descriptors = append(worse.Descriptors, worse.Descriptors[0], domain("a", 0).Descriptors[0])
	worse.Descriptors[2].Key = ""
	m.set("1", bad, domain("c", 5), worse)
	follow(t, xds.Options{Address: m.address})
	asynctest.Eventually(t, "a refusal", func() bool { return m.lastDetail() != "" })
	want := `resource a: descriptors[1]: found the key "user" again, the first is descriptors[0]; allowed: each key with each value once in a list
resource a: descriptors[2].key: found an empty text; allowed: a key of 1 to 255 bytes without control characters
resource b: descriptors[0].rate_limit.unit: found the invalid rate limit unit 99; allowed: second, minute, hour, day, week, month, year`
	if got := m.lastDetail(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestLimitsStayWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	m.set("7", domain("d", 5))
	f := follow(t, xds.Options{Address: m.address})
	f.wantAnswers(m, `ACK "7"`)
	m.stop()
	f.wantMetric("ratelimitd_xds_connected", "", is(0))
	f.wantMetric("ratelimitd_xds_connection_failures_total", "", over(1))
	f.wantLog("; the limits in force stay")
	f.wantRequests("d", 5)
	if page := f.statusPage(); !strings.Contains(page, ": not connected since ") || !strings.Contains(page, "# last failure ") {
		t.Error(page)
	}
	m.start()
	m.set("7", domain("d", 5))
	f.wantAnswers(m, `ACK "7"`, `ACK "7"`)
	if g := f.live.Status().Generation; g != 1 {
		t.Errorf("the same limits were loaded again: generation %d", g)
	}
	if r := m.asked()[2]; r.GetVersionInfo() != "" || r.GetResponseNonce() != "" {
		t.Errorf("the new stream claims %v", r.DiscoveryRequest)
	}
	m.stop()
	f.wantMetric("ratelimitd_xds_connected", "", is(0))
	m.start()
	m.set("2", domain("d", 6)) // an older version, or that of another server
	f.wantRequests("d", 6)
	m.stop()
	f.wantMetric("ratelimitd_xds_connected", "", is(0))
	m.start()
	m.set("2", domain("d", 7)) // the same version with another content
	f.wantRequests("d", 7)
}

func TestAServerThatComesLateIsFound(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	m.stop()
	f := follow(t, xds.Options{Address: m.address})
	f.wantLog("no limits are loaded yet")
	select {
	case <-f.Answered():
		t.Error("answered by nobody")
	default:
	}
	m.start()
	m.set("1", domain("d", 5))
	<-f.Answered()
	f.wantRequests("d", 5)
}

func TestNothingIsLeftRunning(t *testing.T) {
	m := manage(t, nil)
	m.set("1", domain("d", 5))
	before := runtime.NumGoroutine()
	f := follow(t, xds.Options{Address: m.address})
	f.wantRequests("d", 5)
	f.stop()
	asynctest.Eventually(t, "the goroutines of the client end", func() bool { return runtime.NumGoroutine() <= before })
}
