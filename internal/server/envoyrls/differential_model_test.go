package envoyrls_test

import (
	"fmt"
	"math"
	"strings"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// The model answers like envoyproxy/ratelimit, as plainly as possible.
// Intended differences have a comment that begins with "Differs" and the name
// of the difference in docs/migrate.md. differential_model_match_test.go finds
// the limits of a request, and differential_model_answer_test.go makes the
// answer.

// modelNode is a descriptor of a limits file.
type modelNode struct {
	key, value string // no value: any
	limit      *modelLimit

	shadow, quota, share bool
	detailed, byValue    bool // do not change an answer
	metadata             map[string]any
	nodes                []*modelNode
}

type modelLimit struct {
	unlimited bool
	requests  uint32
	unit      string // as in a file, in lower case
	name      string
	replaces  []string
}

// modelUnits are the seconds of each unit.
var modelUnits = map[string]int64{
	"second": 1,
	"minute": 60,
	"hour":   3600,
	"day":    24 * 3600,
	"week":   7 * 24 * 3600,
	"month":  30 * 24 * 3600,
	"year":   365 * 24 * 3600,
}

// modelModes are the settings that change an answer.
type modelModes struct {
	shadow, quota bool // for all
	headers       bool // style ratelimit, else none
	metadata      bool // in answers
}

// model is a service with its counters.
type model struct {
	modes    modelModes
	domains  map[string][]*modelNode
	counters map[string]modelCounter
}

type modelCounter struct{ window, count int64 }

// modelStatus is what the model knows of a descriptor before it has a status.
type modelStatus struct {
	unlimited, shadow bool
	node              *modelNode   // nil if it matched none, brings its own limit, or has none that counts
	levels            []*modelNode // down to node

	// These belong to the limit that counts, if there is one.
	current  *rlsv3.RateLimitResponse_RateLimit
	names    []string // that it replaces
	requests int64
	seconds  int64 // of a window
	cost     int64
	// isReport is set if the descriptor brings the cost.
	isReport bool
	charge   *modelCharge
}

// modelCharge is the charge on one counter from all descriptors that share it.
type modelCharge struct {
	key                     string
	cost, requests, seconds int64
	isReport                bool // of one descriptor at least

	over      bool
	retry     int64 // microseconds, or never
	remaining int64
	reset     int64 // microseconds
}

const never = math.MaxInt64

// answer answers a request at a moment in microseconds.
func (m *model) answer(now int64, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, codes.Code) {
	// Differs (empty requests): INVALID_ARGUMENT; there UNKNOWN.
	if r.GetDomain() == "" || len(r.GetDescriptors()) == 0 {
		return nil, codes.InvalidArgument
	}
	statuses := make([]*modelStatus, len(r.GetDescriptors()))
	for i, d := range r.GetDescriptors() {
		// Differs (units of overrides): an unknown unit and a window longer than
		// limits files allow are INVALID_ARGUMENT; there the first ends the process.
		if l := d.GetLimit(); l != nil && !goodOverride(l) {
			return nil, codes.InvalidArgument
		}
		statuses[i] = m.find(r, d)
	}
	replace(statuses)
	charges := m.charges(r, statuses)
	over := m.decide(now, statuses, charges)

	response := &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK}
	if over {
		response.OverallCode = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	for _, s := range statuses {
		response.Statuses = append(response.Statuses, s.status())
	}
	response.ResponseHeadersToAdd = m.headers(statuses, response)
	if m.modes.metadata {
		response.DynamicMetadata = dynamicMetadata(r, statuses, response)
	}
	return response, codes.OK
}

// charges returns what is asked of each counter, in the order of the request.
//
// Differs (one counter twice): descriptors that share a counter are decided as
// one, with the sum of their costs and the least of their limits; there one
// after the other.
func (m *model) charges(r *rlsv3.RateLimitRequest, statuses []*modelStatus) []*modelCharge {
	var charges []*modelCharge
	byKey := make(map[string]*modelCharge)
	for i, s := range statuses {
		if s.current == nil {
			continue
		}
		key := s.key(r.GetDomain(), r.GetDescriptors()[i])
		c := byKey[key]
		if c == nil {
			c = &modelCharge{key: key, requests: s.requests, seconds: s.seconds}
			byKey[key] = c
			charges = append(charges, c)
		}
		// Differs (huge costs): none is beyond MaxCost, which is more than any limit
		// has.
		c.cost = max(-bucket.MaxCost, min(c.cost+s.cost, bucket.MaxCost))
		c.requests = min(c.requests, s.requests)
		c.isReport = c.isReport || s.isReport
		s.charge = c
	}
	return charges
}

func (m *model) isShadow(s *modelStatus) bool {
	return m.modes.shadow || s.shadow
}

func (m *model) isQuota(s *modelStatus) bool {
	return m.modes.quota || s.node != nil && s.node.quota
}

// key names a counter: by the domain, the entries, and the length of the
// window. All rules and overrides with these share it.
func (s *modelStatus) key(domain string, d *ratelimitv3.RateLimitDescriptor) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %d s", domain, s.seconds)
	for i, e := range d.GetEntries() {
		if s.node != nil && s.levels[i].share {
			fmt.Fprintf(&b, " %q=any %q", e.GetKey(), s.levels[i].value)
		} else {
			fmt.Fprintf(&b, " %q=%q", e.GetKey(), e.GetValue())
		}
	}
	return b.String()
}

// decide decides all charges, makes those that are due, and reports whether
// the request is over its limits.
func (m *model) decide(now int64, statuses []*modelStatus, charges []*modelCharge) bool {
	for _, c := range charges {
		c.look(now, m.count(now, c))
	}
	enforcedOver, quotas, quotasOver := false, 0, 0
	for _, s := range statuses {
		switch {
		case m.isShadow(s):
			// Differs (shadow among quotas): a shadow rule does not count; there, where
			// all limits are quotas, it is one that passes.
		case m.modes.quota && s.current == nil && !s.unlimited:
			quotas++ // which passes, as it has no limit
		case s.current == nil:
		case !m.isQuota(s):
			enforcedOver = enforcedOver || s.charge.over
		default:
			quotas++
			if s.charge.over {
				quotasOver++
			}
		}
	}
	over := enforcedOver || quotas > 0 && quotasOver == quotas
	for _, c := range charges {
		switch {
		case c.isReport && c.cost > 0:
			m.charge(now, c)
			if c.over && c.requests > 0 {
				c.retry = c.ends(now)
			}
		case over:
			// Differs (free denials): a denied request is charged to no limit, even if
			// some allow it, unless its descriptor brings its own hits; there to all.
		case c.over:
			// Differs (no overshoot): a request that passes is charged to no shadow
			// limit or quota that it exceeds, unless its descriptor brings its own hits;
			// there to all.
		default:
			m.charge(now, c)
		}
	}
	return over
}

func window(now int64, c *modelCharge) int64 { return now / (c.seconds * 1e6) }

func (m *model) count(now int64, c *modelCharge) int64 {
	if k := m.counters[c.key]; k.window == window(now, c) {
		return k.count
	}
	return 0
}

// charge adds to the counter. Giving back has no bound.
func (m *model) charge(now int64, c *modelCharge) {
	if c.requests == 0 {
		// Differs (limits of 0): such a limit neither counts nor gives back, even if
		// an override counts on the same counter.
		return
	}
	// Differs (huge costs): a count ends at MaxRequests.
	k := modelCounter{window(now, c), min(max(0, m.count(now, c)+c.cost), bucket.MaxRequests)}
	m.counters[c.key] = k
	c.tell(now, k.count)
}

// look decides a charge on a counter that stands at count.
func (c *modelCharge) look(now, count int64) {
	asked := c.cost
	if asked == 0 && !c.isReport {
		// Differs (one counter twice): hits and refunds that cancel out ask for one.
		asked = 1
	}
	c.over = asked >= 0 && count+asked > c.requests
	if c.requests == 0 && asked == 0 {
		// Differs (limits of 0): such a limit denies a peek too; there only once
		// something was charged.
		c.over = true
	}
	c.retry = c.ends(now)
	if asked > c.requests || c.requests == 0 {
		c.retry = never
	}
	c.tell(now, count)
}

// tell sets what the answer shows of a counter at its new count.
func (c *modelCharge) tell(now, count int64) {
	// Differs (what remains): shown even if the request is over; there 0.
	c.remaining = max(0, c.requests-count)
	// Differs (reset of a full limit): 0 if nothing is counted; there the window's
	// end.
	c.reset = 0
	if count > 0 || c.requests == 0 {
		c.reset = c.ends(now)
	}
}

// ends returns the time until the window ends, in microseconds.
func (c *modelCharge) ends(now int64) int64 { return (window(now, c)+1)*c.seconds*1e6 - now }
