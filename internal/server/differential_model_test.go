package server_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// The model says what envoyproxy/ratelimit answers, as plainly as can be, but
// for the differences that are on purpose. Each of those is where a comment
// begins with "Differs", and has there the name that it has in
// docs/envoy.md.

// modelNode is a descriptor of a limits file.
type modelNode struct {
	key, value string // no value: any
	limit      *modelLimit

	shadow, quota, share bool
	detailed, byValue    bool // have no say in an answer
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

// modelModes are the settings that have a say in an answer.
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

// modelStatus is what is found out of a descriptor on the way to its status.
type modelStatus struct {
	unlimited, shadow bool
	node              *modelNode // nil if it matched none, brings its own limit, or has none that counts

	// These are of the limit that counts, if there is one.
	current  *rlsv3.RateLimitResponse_RateLimit
	names    []string // that it replaces
	requests int64
	seconds  int64 // of a window
	cost     int64
	charge   *modelCharge
}

// modelCharge is what one counter is asked by all descriptors that share it.
type modelCharge struct {
	key                     string
	cost, requests, seconds int64

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
		// Differs (units of overrides): one that is none, and a window longer than a
		// limits file may have, are INVALID_ARGUMENT; there the first ends the
		// process.
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

func overrideSeconds(l *ratelimitv3.RateLimitDescriptor_RateLimitOverride) int64 {
	seconds := modelUnits[strings.ToLower(l.GetUnit().String())]
	if n := l.GetUnitMultiplier(); n != nil {
		seconds *= int64(n.GetValue())
	}
	return seconds
}

func goodOverride(l *ratelimitv3.RateLimitDescriptor_RateLimitOverride) bool {
	seconds := overrideSeconds(l)
	return 0 < seconds && seconds <= 366*24*3600
}

// find finds the limit of a descriptor.
func (m *model) find(r *rlsv3.RateLimitRequest, d *ratelimitv3.RateLimitDescriptor) *modelStatus {
	s := new(modelStatus)
	nodes, known := m.domains[r.GetDomain()]
	if !known {
		return s
	}
	s.cost = cost(r, d)
	if l := d.GetLimit(); l != nil {
		s.requests, s.seconds = int64(l.GetRequestsPerUnit()), overrideSeconds(l)
		s.current = &rlsv3.RateLimitResponse_RateLimit{
			RequestsPerUnit: l.GetRequestsPerUnit(),
			Unit:            rlsv3.RateLimitResponse_RateLimit_Unit(rlsv3.RateLimitResponse_RateLimit_Unit_value[l.GetUnit().String()]),
			UnitMultiplier:  l.GetUnitMultiplier(),
		}
		return s
	}
	s.node = match(nodes, d.GetEntries())
	if s.node == nil {
		return s
	}
	l := s.node.limit
	s.shadow = s.node.shadow
	s.names = l.replaces
	if l.unlimited {
		s.unlimited = true
		return s
	}
	s.requests, s.seconds = int64(l.requests), modelUnits[l.unit]
	s.current = &rlsv3.RateLimitResponse_RateLimit{
		Name:            l.name,
		RequestsPerUnit: l.requests,
		Unit:            rlsv3.RateLimitResponse_RateLimit_Unit(rlsv3.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(l.unit)]),
	}
	return s
}

// cost returns what a descriptor costs; 0 is a peek.
func cost(r *rlsv3.RateLimitRequest, d *ratelimitv3.RateLimitDescriptor) int64 {
	hits := uint64(max(r.GetHitsAddend(), 1))
	if h := d.GetHitsAddend(); h != nil {
		hits = h.GetValue()
	}
	c := int64(min(hits, bucket.MaxCost))
	// Differs (refunds): negative hits give back; there they count as others.
	if d.GetIsNegativeHits() {
		return -c
	}
	return c
}

// match matches entries level by level and does not come back to a level.
//
// Differs (joined entries): keys and values are compared each for itself; there
// as one text, joined by "_".
func match(nodes []*modelNode, entries []*ratelimitv3.RateLimitDescriptor_Entry) *modelNode {
	var at *modelNode
	for _, e := range entries {
		at = matchOne(nodes, e)
		if at == nil {
			return nil
		}
		nodes = at.nodes
	}
	if at == nil || at.limit == nil {
		return nil
	}
	return at
}

func matchOne(nodes []*modelNode, e *ratelimitv3.RateLimitDescriptor_Entry) *modelNode {
	for _, fits := range []func(value string) bool{
		func(v string) bool { return v != "" && !strings.Contains(v, "*") && v == e.GetValue() },
		func(v string) bool { return strings.Contains(v, "*") && fitsPattern(v, e.GetValue()) },
		func(v string) bool { return v == "" },
	} {
		for _, n := range nodes {
			if n.key == e.GetKey() && fits(n.value) {
				return n
			}
		}
	}
	return nil
}

func fitsPattern(pattern, value string) bool {
	switch {
	case pattern == "":
		return value == ""
	case pattern[0] == '*':
		return fitsPattern(pattern[1:], value) || value != "" && fitsPattern(pattern, value[1:])
	default:
		return value != "" && pattern[0] == value[0] && fitsPattern(pattern[1:], value[1:])
	}
}

// replace drops the limits that others replace, in one pass.
func replace(statuses []*modelStatus) {
	replaced := make(map[string]bool)
	for _, s := range statuses {
		for _, name := range s.names {
			replaced[name] = true
		}
	}
	for _, s := range statuses {
		if s.current != nil && s.current.GetName() != "" && replaced[s.current.GetName()] {
			*s = modelStatus{shadow: s.shadow}
		}
	}
}

// charges returns what each counter is asked, in the order of the request.
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

// key is what has a counter of its own: the domain, the entries, and the length
// of the window, whichever limit asks: a rule's, or an override of any number.
func (s *modelStatus) key(domain string, d *ratelimitv3.RateLimitDescriptor) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %d s", domain, s.seconds)
	for i, e := range d.GetEntries() {
		if s.node != nil && s.node.share && i == len(d.GetEntries())-1 {
			fmt.Fprintf(&b, " %q=any %q", e.GetKey(), s.node.value)
		} else {
			fmt.Fprintf(&b, " %q=%q", e.GetKey(), e.GetValue())
		}
	}
	return b.String()
}

// decide decides all charges, makes those that are due, and returns whether
// the request is over its limits.
func (m *model) decide(now int64, statuses []*modelStatus, charges []*modelCharge) bool {
	for _, c := range charges {
		c.look(now, m.count(now, c))
	}
	enforcedOver, quotas, quotasOver := false, 0, 0
	for _, s := range statuses {
		switch {
		case m.isShadow(s):
			// Differs (shadow among quotas): a shadow rule has no say; there, where all
			// limits are quotas, it is one that passes.
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
		case over:
			// Differs (free denials): a denied request is charged to no limit, also
			// not to those that would have allowed it; there to all.
		case c.over:
			// Differs (no overshoot): one that passes is charged to no shadow limit or
			// quota that it exceeds; there to all.
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

// charge adds to the counter. Giving back stops at nothing.
func (m *model) charge(now int64, c *modelCharge) {
	if c.requests == 0 {
		// Differs (limits of 0): it counts nothing and takes nothing back, also where
		// an override counts in the same place.
		return
	}
	k := modelCounter{window(now, c), max(0, m.count(now, c)+c.cost)}
	m.counters[c.key] = k
	c.tell(now, k.count)
}

// look decides the charge where count was counted so far.
func (c *modelCharge) look(now, count int64) {
	// Differs (peeks): one is over where a hit would be; there where the count is
	// beyond the limit.
	asked := c.cost
	if asked == 0 {
		asked = 1
	}
	c.over = asked > 0 && count+asked > c.requests
	c.retry = c.ends(now)
	if asked > c.requests {
		c.retry = never
	}
	c.tell(now, count)
}

// tell sets what is said of the counter where it has come to count.
func (c *modelCharge) tell(now, count int64) {
	// Differs (what remains): also when the request is over; there 0.
	c.remaining = max(0, c.requests-count)
	// Differs (reset of a full limit): 0 where nothing is counted, and of a limit
	// of 0, which never has more; there the window's end.
	c.reset = 0
	if count > 0 && c.requests > 0 {
		c.reset = c.ends(now)
	}
}

// ends is how long the window lasts yet, in microseconds.
func (c *modelCharge) ends(now int64) int64 { return (window(now, c)+1)*c.seconds*1e6 - now }

func seconds(micros int64) int64 { return (micros + 1e6 - 1) / 1e6 }

// isOver is what the status says.
func (s *modelStatus) isOver() bool {
	return s.charge != nil && s.charge.over && !s.shadow
}

func (s *modelStatus) status() *rlsv3.RateLimitResponse_DescriptorStatus {
	status := &rlsv3.RateLimitResponse_DescriptorStatus{Code: rlsv3.RateLimitResponse_OK}
	if s.isOver() {
		status.Code = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	if s.unlimited {
		status.LimitRemaining = math.MaxUint32
	}
	if s.charge != nil {
		status.CurrentLimit = s.current
		status.LimitRemaining = uint32(s.charge.remaining)
		status.DurationUntilReset = durationpb.New(0)
		status.DurationUntilReset.Seconds = seconds(s.charge.reset)
	}
	return status
}

// headers are of the limit with the least remaining, but the last one that is
// over and no quota comes before all.
func (m *model) headers(statuses []*modelStatus, r *rlsv3.RateLimitResponse) []*corev3.HeaderValue {
	var headers []*corev3.HeaderValue
	add := func(key string, n int64) {
		headers = append(headers, &corev3.HeaderValue{Key: key, Value: strconv.FormatInt(n, 10)})
	}
	var shown *rlsv3.RateLimitResponse_DescriptorStatus
	beats := false
	for i, s := range statuses {
		status := r.GetStatuses()[i]
		switch {
		case status.GetCurrentLimit() == nil:
		case s.isOver() && !m.isQuota(s):
			shown, beats = status, true
		case !beats && (shown == nil || status.GetLimitRemaining() < shown.GetLimitRemaining()):
			shown = status
		}
	}
	if m.modes.headers && shown != nil {
		add("RateLimit-Limit", int64(shown.GetCurrentLimit().GetRequestsPerUnit()))
		add("RateLimit-Remaining", int64(shown.GetLimitRemaining()))
		add("RateLimit-Reset", shown.GetDurationUntilReset().GetSeconds())
	}
	// Differs (retry-after): a denial says when to come again; there nothing does.
	if r.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
		if retry := m.retryAfter(statuses); retry != never {
			add("retry-after", seconds(retry))
		}
	}
	return headers
}

// retryAfter is when all enforced limits allow the request, and one quota.
func (m *model) retryAfter(statuses []*modelStatus) int64 {
	var enforced int64
	var quotas []int64
	for _, s := range statuses {
		if s.charge == nil || m.isShadow(s) {
			continue
		}
		wait := int64(0)
		if s.charge.over {
			wait = s.charge.retry
		}
		if m.isQuota(s) {
			quotas = append(quotas, wait)
		} else {
			enforced = max(enforced, wait)
		}
	}
	if len(quotas) > 0 {
		return max(enforced, slices.Min(quotas))
	}
	return enforced
}

// dynamicMetadata repeats the request, and tells what rules say of it.
func dynamicMetadata(r *rlsv3.RateLimitRequest, statuses []*modelStatus, response *rlsv3.RateLimitResponse) *structpb.Struct {
	fields := map[string]any{"domain": r.GetDomain()}
	if r.GetHitsAddend() != 0 {
		fields["hitsAddend"] = r.GetHitsAddend()
	}
	var descriptors []any
	for _, d := range r.GetDescriptors() {
		entries := []any{}
		for _, e := range d.GetEntries() {
			entries = append(entries, e.GetKey()+"="+e.GetValue())
		}
		described := map[string]any{"entries": entries}
		if h := d.GetHitsAddend(); h != nil {
			described["hitsAddend"] = h.GetValue()
		}
		if l := d.GetLimit(); l != nil {
			described["limit"] = describeOverride(l)
		}
		descriptors = append(descriptors, described)
	}
	fields["descriptors"] = descriptors

	merged := make(map[string]any)
	for i, s := range statuses {
		// Differs (metadata of unlimited rules): told as that of others; there left
		// out.
		if s.node != nil && response.GetStatuses()[i].GetCode() == rlsv3.RateLimitResponse_OK {
			mergeMetadata(merged, s.node.metadata)
		}
	}
	if len(merged) > 0 {
		fields["metadata"] = merged
	}
	made, err := structpb.NewStruct(fields)
	if err != nil {
		panic(err)
	}
	return made
}

// describeOverride writes an override as protobuf's text format has it.
func describeOverride(l *ratelimitv3.RateLimitDescriptor_RateLimitOverride) string {
	text := "unit:" + l.GetUnit().String()
	if n := l.GetRequestsPerUnit(); n != 0 {
		text = fmt.Sprintf("requests_per_unit:%d %s", n, text)
	}
	if n := l.GetUnitMultiplier(); n != nil {
		text += fmt.Sprintf(" unit_multiplier:{value:%d}", n.GetValue())
	}
	return text
}

// mergeMetadata adds what is not there yet.
func mergeMetadata(into, from map[string]any) {
	for _, k := range slices.Sorted(maps.Keys(from)) {
		old, there := into[k]
		oldMap, isMap := old.(map[string]any)
		fromMap, alsoMap := from[k].(map[string]any)
		switch {
		case there && isMap && alsoMap:
			mergeMetadata(oldMap, fromMap)
		case !there && alsoMap:
			fresh := make(map[string]any)
			mergeMetadata(fresh, fromMap)
			into[k] = fresh
		case !there:
			into[k] = from[k]
		}
	}
}
