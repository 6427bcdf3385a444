package envoyrls_test

import (
	"strings"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

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
	s.cost, s.isReport = cost(r, d), d.GetHitsAddend() != nil
	if l := d.GetLimit(); l != nil {
		s.requests, s.seconds = int64(l.GetRequestsPerUnit()), overrideSeconds(l)
		s.current = &rlsv3.RateLimitResponse_RateLimit{
			RequestsPerUnit: l.GetRequestsPerUnit(),
			Unit:            rlsv3.RateLimitResponse_RateLimit_Unit(rlsv3.RateLimitResponse_RateLimit_Unit_value[l.GetUnit().String()]),
			UnitMultiplier:  l.GetUnitMultiplier(),
		}
		return s
	}
	s.levels = levels(nodes, d.GetEntries())
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
	// Differs (refunds): negative hits give back; there they count like others.
	if d.GetIsNegativeHits() {
		return -c
	}
	return c
}

// match matches entries level by level and does not come back to a level.
//
// Differs (joined entries): keys and values are compared one by one; there as one text,
// joined by "_".
func match(nodes []*modelNode, entries []*ratelimitv3.RateLimitDescriptor_Entry) *modelNode {
	all := levels(nodes, entries)
	if len(all) == 0 || len(all) < len(entries) || all[len(all)-1].limit == nil {
		return nil
	}
	return all[len(all)-1]
}

// levels returns what the entries match, level by level, as far as they match.
func levels(nodes []*modelNode, entries []*ratelimitv3.RateLimitDescriptor_Entry) (all []*modelNode) {
	for _, e := range entries {
		at := matchOne(nodes, e)
		if at == nil {
			break
		}
		all = append(all, at)
		nodes = at.nodes
	}
	return all
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
