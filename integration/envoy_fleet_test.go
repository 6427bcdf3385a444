package integration

import (
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// manyUsers is a limit that nobody reaches.
const manyUsers = `
domain: envoy
descriptors:
  - key: user
    rate_limit: {requests: 1000000, period: 1d}
`

// fleetCluster makes Envoy check five times a second which daemons are ready.
const fleetCluster = `
circuit_breakers: {thresholds: [{max_retries: 1000}]}
common_lb_config: {healthy_panic_threshold: {value: 0}}
health_checks:
  - timeout: 2s
    interval: 0.2s
    no_traffic_interval: 0.2s
    unhealthy_threshold: 1
    healthy_threshold: 1
    grpc_health_check: {service_name: ratelimit}
`

// neverReached makes Envoy ask another daemon if a request certainly did not
// reach the first.
const neverReached = `
retry_policy:
  retry_on: connect-failure,refused-stream
  num_retries: 3
  retry_host_predicate:
    - name: envoy.retry_host_predicates.previous_hosts
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate
  host_selection_retry_max_attempts: 5
`

// traffic is callers that ask Envoy all the time, one request each.
type traffic struct {
	t              testing.TB
	served, failed atomic.Int64
	last           atomic.Value // the last failure
	stopped        chan struct{}
	callers        sync.WaitGroup
}

const trafficCallers = 8

func (e *envoy) startTraffic(listener string) *traffic {
	tr := &traffic{t: e.t, stopped: make(chan struct{})}
	url := e.url(listener, "/")
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: trafficCallers}}
	for range trafficCallers {
		tr.callers.Go(func() {
			for {
				select {
				case <-tr.stopped:
					return
				case <-time.After(time.Millisecond): // other tests need the machine
					tr.ask(client, url)
				}
			}
		})
	}
	return tr
}

func (tr *traffic) ask(client *http.Client, url string) {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		tr.t.Error(err)
		return
	}
	r.Header.Set("x-user", "alice")
	response, err := client.Do(r)
	if err != nil {
		tr.t.Error(err)
		return
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		tr.served.Add(1)
		return
	}
	tr.failed.Add(1)
	tr.last.Store(response.Status)
}

// more waits until Envoy has served n more requests.
func (tr *traffic) more(what string, n int64) {
	tr.t.Helper()
	until := tr.served.Load() + n
	asynctest.Eventually(tr.t, what, func() bool { return tr.served.Load() >= until })
}

// stop ends the traffic and returns how many requests failed.
func (tr *traffic) stop() int64 {
	close(tr.stopped)
	tr.callers.Wait()
	tr.t.Logf("%d served, %d failed, the last with %v", tr.served.Load(), tr.failed.Load(), tr.last.Load())
	return tr.failed.Load()
}

// A daemon restarts behind Envoy's health checks unnoticed. A killed one fails
// only the requests that it had.
func TestDaemonRestartsBehindEnvoyUnnoticed(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	dir := t.TempDir()
	write(t, dir, "envoy.yaml", manyUsers)
	first, second := freeAddress(t), freeAddress(t)
	flags := append(redisFlags("single", redistest.Single(t)), "--limits-path", dir, "--drain-delay", "1m")
	serve := func(at string) *daemon { return start(t, append(flags, "--grpc-address", at)...) }
	a := serve(first)
	b := serve(second)
	target := startBackend(t)
	fleet := ratelimitdAt(first, second)
	fleet.More = fleetCluster
	e := startEnvoy(t, configure(t, []front{{
		Name: "closed", Filter: patiently + "\nfailure_mode_deny: true", Routes: userRoutes, Retry: neverReached,
	}}, fleet, target.cluster()))
	healthy := func(n int) {
		t.Helper()
		asynctest.Eventually(t, "Envoy knows who is ready", func() bool { return e.stat("cluster.ratelimitd.membership_healthy") == n })
	}
	healthy(2)

	tr := e.startTraffic("closed")
	tr.more("requests are served", 200)
	a.signal(syscall.SIGTERM)
	healthy(1)
	if code := a.stop(os.Interrupt); code != 0 { // which ends the delay
		t.Errorf("the daemon exits with %d", code)
	}
	tr.more("one daemon serves", 200)
	a = serve(first)
	healthy(2)
	before := a.total("ratelimitd_requests_total")
	asynctest.Eventually(t, "the restarted daemon is asked", func() bool {
		tr.more("both serve", 20)
		return a.total("ratelimitd_requests_total") > before
	})
	if failed := tr.stop(); failed > 0 {
		t.Errorf("%d requests failed during a restart", failed)
	}

	tr = e.startTraffic("closed")
	tr.more("requests are served", 200)
	b.stop(syscall.SIGKILL)
	healthy(1)
	tr.more("one daemon serves", 200)
	// Those in flight, and once more: a process that is killed closes its connections
	// before it closes its port, which takes another one meanwhile.
	if failed := tr.stop(); failed > 2*trafficCallers {
		t.Errorf("%d requests failed when a daemon was killed, with %d in flight", failed, trafficCallers)
	}
}
