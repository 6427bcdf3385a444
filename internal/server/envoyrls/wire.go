package envoyrls

import (
	"math"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/proto/wire"
)

// A request is read from its bytes into a call, and a response is written to its bytes,
// without protobuf's messages, which would cost more than the decision. The field
// numbers are those of Envoy's .proto files named below; tests compare both with the
// messages.

// ReadWire reads a RateLimitRequest (envoy/service/ratelimit/v3/rls.proto) into an empty
// call, which keeps parts of it.
func (c *envoyCall) ReadWire(request string) error {
	c.Size = len(request)
	f := wire.Fields[string]{Rest: request}
	for f.Next() {
		switch {
		case f.Is(1, wire.Bytes):
			c.Domain = f.Text()
		case f.Is(2, wire.Bytes):
			if c.IsFull() {
				continue
			}
			if err := c.unmarshalDescriptor(f.Bytes); err != nil {
				return err
			}
		case f.Is(3, wire.Varint):
			c.HitsAddend = uint32(f.Varint)
		}
	}
	c.SettleEntries()
	return f.Err
}

// unmarshalDescriptor reads a RateLimitDescriptor
// (envoy/extensions/common/ratelimit/v3/ratelimit.proto).
func (c *envoyCall) unmarshalDescriptor(message string) error {
	start := len(c.Entries)
	var d decide.Descriptor
	var limit own
	f := wire.Fields[string]{Rest: message}
	for f.Next() {
		var err error
		switch {
		case f.Is(1, wire.Bytes):
			if c.IsFullOf(&d, start) {
				continue
			}
			// Envoy sends headers as they are, and lets a request pass if the call
			// fails.
			var e bucket.Entry
			e.Key, e.Value, err = wire.Pair(f.Bytes, true)
			c.Entries = append(c.Entries, e)
		case f.Is(2, wire.Bytes):
			d.Own.Set = true
			err = limit.unmarshal(f.Bytes)
		case f.Is(3, wire.Bytes):
			d.HasHitsAddend, d.Reports = true, true
			err = unmarshalValue(&d.HitsAddend, f.Bytes)
		case f.Is(4, wire.Varint):
			d.Refund = f.Varint != 0
		}
		if err != nil {
			return err
		}
	}
	if d.Own.Set {
		d.Own = limit.override(len(c.Descriptors))
	}
	c.AddDescriptor(d, start)
	return f.Err
}

// unmarshal reads a RateLimitOverride of a RateLimitDescriptor. A message that comes in
// several parts is their sum.
func (o *own) unmarshal(message string) error {
	f := wire.Fields[string]{Rest: message}
	for f.Next() {
		switch {
		case f.Is(1, wire.Varint):
			o.requests = uint32(f.Varint)
		case f.Is(2, wire.Varint):
			o.unit = typev3.RateLimitUnit(f.Varint)
		case f.Is(3, wire.Bytes):
			o.hasMultiplier = true
			if err := unmarshalValue(&o.multiplier, f.Bytes); err != nil {
				return err
			}
		}
	}
	return f.Err
}

// unmarshalValue reads a UInt32Value or UInt64Value
// (google/protobuf/wrappers.proto).
func unmarshalValue(n *uint64, message string) error {
	f := wire.Fields[string]{Rest: message}
	for f.Next() {
		if f.Is(1, wire.Varint) {
			*n = f.Varint
		}
	}
	return f.Err
}

// AppendWire appends the RateLimitResponse of a decided call
// (envoy/service/ratelimit/v3/rls.proto).
func (c *envoyCall) AppendWire(dst []byte) []byte {
	overall := rlsv3.RateLimitResponse_OK
	if c.Denied {
		overall = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	degraded := false
	for i := range c.Outcomes {
		for _, d := range c.Outcomes[i].Decisions {
			degraded = degraded || d.Degraded
		}
	}
	dst = wire.AppendNumber(dst, 1, uint64(overall))
	for i := range c.Outcomes {
		var start int
		dst, start = wire.BeginMessage(dst, 2)
		dst = appendStatus(dst, &c.Outcomes[i])
		dst = wire.EndMessage(dst, start)
	}
	var few [endpoint.FewHeaders]endpoint.Header
	for _, h := range endpoint.AppendHeaders(c.Call, few[:0], c.api.Headers) {
		dst = appendHeader(dst, &h)
	}
	switch {
	case c.api.metadata:
		var start int
		dst, start = wire.BeginMessage(dst, 6)
		dst = c.appendMetadata(dst, degraded)
		dst = wire.EndMessage(dst, start)
	case degraded:
		dst = protowire.AppendTag(dst, 6, wire.Bytes)
		dst = protowire.AppendBytes(dst, degradedMetadata)
	}
	return dst
}

// appendStatus appends a DescriptorStatus.
func appendStatus(dst []byte, o *decide.Outcome) []byte {
	code, remaining := rlsv3.RateLimitResponse_OK, int64(0)
	limit, d := o.Decisive()
	switch {
	case limit != nil:
		remaining = d.Remaining
		if !d.Allowed() && !o.Shadow {
			code = rlsv3.RateLimitResponse_OVER_LIMIT
		}
	case o.IsUnlimited():
		remaining = math.MaxUint32
	}
	dst = wire.AppendNumber(dst, 1, uint64(code))
	if limit != nil {
		var start int
		dst, start = wire.BeginMessage(dst, 2)
		dst = appendLimit(dst, limit, o.Own)
		dst = wire.EndMessage(dst, start)
	}
	dst = wire.AppendNumber(dst, 3, uint64(min(remaining, math.MaxUint32)))
	if limit != nil {
		// A Duration (google/protobuf/duration.proto) of whole seconds.
		var start int
		dst, start = wire.BeginMessage(dst, 4)
		dst = wire.AppendNumber(dst, 1, uint64(endpoint.Seconds(d.ResetAfter)))
		dst = wire.EndMessage(dst, start)
	}
	return dst
}

// appendLimit appends the fields of a RateLimitResponse.RateLimit; own is the
// descriptor's own limit, or nil.
func appendLimit(dst []byte, l *bucket.Limit, own *decide.Override) []byte {
	dst = wire.AppendNumber(dst, 1, uint64(min(l.Requests, math.MaxUint32)))
	if own != nil {
		s := &own.Spelling
		dst = wire.AppendNumber(dst, 2, uint64(unitNamed(typev3.RateLimitUnit(s.Unit)).inResponse))
		if s.HasMultiplier {
			dst = appendMultiplier(dst, int64(s.Multiplier))
		}
		return dst
	}
	unit, multiplier := unitOf(l)
	dst = wire.AppendNumber(dst, 2, uint64(unit))
	if l.Name != "" {
		dst = wire.AppendText(dst, 3, l.Name)
	}
	if multiplier > 1 {
		dst = appendMultiplier(dst, multiplier)
	}
	return dst
}

// appendMultiplier appends the unit_multiplier of a RateLimit, a UInt32Value
// (google/protobuf/wrappers.proto).
func appendMultiplier(dst []byte, n int64) []byte {
	dst, start := wire.BeginMessage(dst, 4)
	dst = wire.AppendNumber(dst, 1, uint64(n))
	return wire.EndMessage(dst, start)
}

// appendHeader appends a HeaderValue (envoy/config/core/v3/base.proto) to the
// response_headers_to_add.
func appendHeader(dst []byte, h *endpoint.Header) []byte {
	dst, message := wire.BeginMessage(dst, 3)
	dst = wire.AppendText(dst, 1, h.Name)
	dst, text := wire.BeginMessage(dst, 2)
	dst = wire.EndMessage(h.AppendValue(dst), text)
	return wire.EndMessage(dst, message)
}
