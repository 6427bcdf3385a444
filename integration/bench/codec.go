package main

import (
	"errors"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// rawCodec sends requests that are marshalled already and reads of responses
// only what is counted, so that the generator leaves the processors to the
// servers.
type rawCodec struct{}

// Name is that of the codec whose bytes these are.
func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	switch r := v.(type) {
	case *request:
		return mem.BufferSlice{mem.SliceBuffer(r.bytes)}, nil
	case *batchRequest:
		return mem.BufferSlice{mem.SliceBuffer(r.bytes())}, nil
	}
	return nil, errors.New("neither a *request nor a *batchRequest")
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(interface{ parse(text []byte) error })
	if !ok {
		return errors.New("neither a *reply nor a *batchReply")
	}
	if len(data) == 1 {
		return r.parse(data[0].ReadOnlyData())
	}
	return r.parse(data.Materialize())
}

// reply is what is counted of a response.
type reply struct {
	code     rlsv3.RateLimitResponse_Code
	statuses int
	// degraded is whether there is dynamic metadata, which is where the daemon
	// says so.
	degraded bool
}

// The fields of a RateLimitResponse.
const (
	fieldOverallCode     = 1
	fieldStatuses        = 2
	fieldDynamicMetadata = 6
)

func (r *reply) parse(text []byte) error {
	*r = reply{}
	for len(text) > 0 {
		field, kind, n := protowire.ConsumeTag(text)
		if n < 0 {
			return protowire.ParseError(n)
		}
		text = text[n:]
		switch field {
		case fieldOverallCode:
			code, _ := protowire.ConsumeVarint(text)
			r.code = rlsv3.RateLimitResponse_Code(code)
		case fieldStatuses:
			r.statuses++
		case fieldDynamicMetadata:
			r.degraded = true
		}
		if n = protowire.ConsumeFieldValue(field, kind, text); n < 0 {
			return protowire.ParseError(n)
		}
		text = text[n:]
	}
	return nil
}
