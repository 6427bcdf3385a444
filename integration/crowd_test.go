package integration

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
)

// crowd asks daemons at a steady pace, each caller for one subject, until it
// is sent home. It keeps a ledger for each subject.
//
// A subject is the descriptors of a request with a space between them, each
// KEY=VALUE.
type crowd struct {
	t       testing.TB
	daemons []*atomic.Pointer[daemon]
	ledgers map[string]*ledger
	home    context.CancelFunc
	callers sync.WaitGroup
}

// ledger keeps the tally of a subject.
type ledger struct {
	mu sync.Mutex
	tally
}

// tally counts what callers were told.
type tally struct {
	admitted int // by Redis
	denied   int // by Redis
	degraded int // answers without Redis
	failed   int // calls without an answer
	// lost is the time of the last failure or answer without Redis.
	lost    time.Time
	failure error // the last one
	slowest time.Duration
}

// patient is longer than any answer takes.
const patient = 20 * time.Second

// gather starts this many callers for each subject and daemon. Each asks once
// in every.
func gather(t testing.TB, daemons []*daemon, domain string, callers int, every time.Duration, subjects ...string) *crowd {
	ctx, cancel := context.WithCancel(context.Background())
	c := &crowd{t: t, home: cancel, ledgers: make(map[string]*ledger)}
	t.Cleanup(c.goHome)
	for _, d := range daemons {
		p := new(atomic.Pointer[daemon])
		p.Store(d)
		c.daemons = append(c.daemons, p)
	}
	for _, s := range subjects {
		l := new(ledger)
		c.ledgers[s] = l
		for i := range callers * len(daemons) {
			c.callers.Go(func() {
				tick := time.NewTicker(every)
				defer tick.Stop()
				for {
					l.ask(c.daemons[i%len(daemons)].Load(), patient, domain, s)
					select {
					case <-ctx.Done():
						return
					case <-tick.C:
					}
				}
			})
		}
	}
	return c
}

// goHome ends the load and waits for its last answers.
func (c *crowd) goHome() {
	c.home()
	c.callers.Wait()
}

// ask asks once for a subject with a cost of 1 and a deadline.
func (l *ledger) ask(d *daemon, patience time.Duration, domain, subject string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	start := time.Now()
	r, err := d.client.ShouldRateLimit(ctx, requestFor(domain, subject))
	end := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slowest = max(l.slowest, end.Sub(start))
	switch {
	case err != nil:
		l.failed++
		l.lost, l.failure = end, err
	case degraded(r):
		l.degraded++
		l.lost = end
	case ok(r):
		l.admitted++
	default:
		l.denied++
	}
}

func requestFor(domain, subject string) *rlsv3.RateLimitRequest {
	r := &rlsv3.RateLimitRequest{Domain: domain}
	for d := range strings.SplitSeq(subject, " ") {
		r.Descriptors = append(r.Descriptors, request(domain, 1, d).Descriptors...)
	}
	return r
}

func (l *ledger) now() tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tally
}

// told returns how many calls Redis decided.
func (n tally) told() int { return n.admitted + n.denied }

// asked returns the number of calls.
func (n tally) asked() int { return n.told() + n.unsure() }

// unsure returns how many calls may or may not have been charged, as far as
// their callers know.
func (n tally) unsure() int { return n.degraded + n.failed }

func (n tally) String() string {
	s := fmt.Sprintf("%d admitted, %d denied, %d degraded, %d failed, the slowest after %v", n.admitted, n.denied, n.degraded, n.failed, n.slowest)
	if n.failure != nil {
		s += fmt.Sprintf(", the last failure: %v", n.failure)
	}
	return s
}

// subjects returns all subjects of the crowd.
func (c *crowd) subjects() []string { return slices.Sorted(maps.Keys(c.ledgers)) }

// sum adds up the ledgers of subjects.
func (c *crowd) sum(subjects []string) (all tally) {
	for _, s := range subjects {
		l := c.ledgers[s].now()
		all.admitted += l.admitted
		all.denied += l.denied
		all.degraded += l.degraded
		all.failed += l.failed
		all.slowest = max(all.slowest, l.slowest)
		if l.lost.After(all.lost) {
			all.lost = l.lost
		}
		if l.failure != nil {
			all.failure = l.failure
		}
	}
	return all
}

// waitDecided waits until Redis has decided n more calls for each of the
// subjects.
func (c *crowd) waitDecided(n int, subjects []string) {
	c.t.Helper()
	enough := make(map[string]int)
	for _, s := range subjects {
		enough[s] = c.ledgers[s].now().told() + n
	}
	for s, n := range enough {
		asynctest.Eventually(c.t, "Redis decides again and again for "+s, func() bool { return c.ledgers[s].now().told() >= n })
	}
}

// total adds up the series of a metric that have all of these labels, each
// name="value".
func (d *daemon) total(name string, labels ...string) float64 {
	d.t.Helper()
	_, page := get(d.t, "http://"+d.admin+"/metrics")
	sum := 0.0
series:
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(?:\{(.*)\})? (\S+)$`).FindAllStringSubmatch(page, -1) {
		for _, l := range labels {
			if !strings.Contains(","+m[1]+",", ","+l+",") {
				continue series
			}
		}
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			d.t.Fatal(err)
		}
		sum += v
	}
	return sum
}

// whyDegraded counts answers without Redis by their reason.
func (d *daemon) whyDegraded() string {
	var counts []string
	for _, r := range fallback.Reasons() {
		if n := d.total("ratelimitd_degraded_answers_total", fmt.Sprintf("reason=%q", r)); n > 0 {
			counts = append(counts, fmt.Sprintf("%s: %v", r, n))
		}
	}
	return strings.Join(counts, ", ")
}

// taken returns how much of a limit Redis has charged to a subject. The
// subject has one descriptor, and its rule one limit. It takes 1 and looks at
// the rest.
func (d *daemon) taken(domain, subject string, limit int) int {
	d.t.Helper()
	r := d.ask(domain, 1, subject)
	if degraded(r) {
		d.t.Fatalf("%s: a lone request is degraded", subject)
	}
	n := limit - int(r.GetStatuses()[0].GetLimitRemaining())
	if ok(r) {
		n--
	}
	return n
}
