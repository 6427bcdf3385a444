package envoyrls_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

func seconds(micros int64) int64 { return (micros + 1e6 - 1) / 1e6 }

// isOver reports whether the status is OVER_LIMIT.
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

// headers shows the limit with the least remaining. The last limit that is over and is
// not a quota takes precedence over all others.
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
	// Differs (retry-after): a denial has it; there it is not sent.
	if r.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
		if retry := m.retryAfter(statuses); retry != never {
			add("retry-after", seconds(retry))
		}
	}
	return headers
}

// retryAfter returns when all enforced limits and one quota allow the request.
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

// dynamicMetadata repeats the request and adds the metadata of its rules.
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
		// Differs (metadata of unlimited rules): shown like that of others; there
		// left out.
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

// describeOverride writes an override in protobuf's text format.
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

// mergeMetadata adds missing values.
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
