package client

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// The messages of proto/ratelimit/v1/ratelimit.proto are written and read by
// the numbers of their fields, for generated messages would cost more than all
// the rest that a request needs here.

const (
	varintKind  = protowire.VarintType
	bytesKind   = protowire.BytesType
	fixed64Kind = protowire.Fixed64Type
)

// message is a message in its bytes.
type message struct{ data []byte }

// codec passes messages through as they are.
type codec struct{}

var _ encoding.CodecV2 = codec{}

// Name implements encoding.CodecV2: what passes is protobuf.
func (codec) Name() string { return proto.Name }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*message)
	if !ok {
		return nil, fmt.Errorf("client: an interceptor sends a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(m.data)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*message)
	if !ok {
		return fmt.Errorf("client: an interceptor reads a %T", v)
	}
	n := data.Len()
	if cap(m.data) < n {
		m.data = make([]byte, n)
	}
	m.data = m.data[:n]
	data.CopyTo(m.data)
	return nil
}

// appendTake appends the TakeRequest; without its costs it is what requests
// about the same limits have in common.
func appendTake(dst []byte, r *Request, withCosts bool) []byte {
	dst = appendText(dst, 1, r.Domain)
	for i := range r.Descriptors {
		d := &r.Descriptors[i]
		size := 0
		for _, e := range d.Entries {
			size += fieldSize(entrySize(e))
		}
		hasCost, numbers := withCosts && (d.Peek || d.Cost > 1), 0
		if hasCost {
			size += 1 + protowire.SizeVarint(d.Cost)
		}
		if d.Numbers != nil {
			numbers = d.Numbers.size()
			size += fieldSize(numbers)
		}
		dst = appendHead(dst, 2, size)
		for _, e := range d.Entries {
			dst = appendHead(dst, 1, entrySize(e))
			dst = appendText(dst, 1, e.Key)
			dst = appendText(dst, 2, e.Value)
		}
		if hasCost {
			dst = protowire.AppendVarint(protowire.AppendTag(dst, 2, varintKind), d.Cost)
		}
		if d.Numbers != nil {
			dst = d.Numbers.append(appendHead(dst, 3, numbers))
		}
	}
	return dst
}

func entrySize(e Entry) int { return textSize(e.Key) + textSize(e.Value) }

// size is that of the Numbers without their head.
func (n *Numbers) size() int {
	return numberSize(uint64(n.Requests)) + fieldSize(durationSize(n.Period)) + numberSize(uint64(n.Burst))
}

func (n *Numbers) append(dst []byte) []byte {
	dst = appendNumber(dst, 1, uint64(n.Requests))
	dst = appendHead(dst, 2, durationSize(n.Period))
	dst = appendNumber(dst, 1, uint64(n.Period/time.Second))
	dst = appendNumber(dst, 2, uint64(n.Period%time.Second))
	return appendNumber(dst, 3, uint64(n.Burst))
}

func durationSize(d time.Duration) int {
	return numberSize(uint64(d/time.Second)) + numberSize(uint64(d%time.Second))
}

// appendNumbered appends a take to a TakeStreamRequest.
func appendNumbered(dst []byte, number uint64, take []byte) []byte {
	dst = appendHead(dst, 1, numberSize(number)+fieldSize(len(take)))
	dst = appendNumber(dst, 1, number)
	return append(appendHead(dst, 2, len(take)), take...)
}

// appendGiveBack appends the GiveBackRequest of a take.
func appendGiveBack(dst []byte, r *Result) []byte {
	dst = append(appendHead(dst, 1, len(r.take)), r.take...)
	size := 0
	for i := range r.Limits {
		size += protowire.SizeVarint(uint64(r.Limits[i].takenAt))
	}
	dst = appendHead(dst, 2, size)
	for i := range r.Limits {
		dst = protowire.AppendVarint(dst, uint64(r.Limits[i].takenAt))
	}
	dst = appendHead(dst, 3, 8*len(r.Limits))
	for i := range r.Limits {
		dst = protowire.AppendFixed64(dst, r.Limits[i].takenBy)
	}
	return dst
}

// The numbers of all fields here are under 16: a tag is one byte.

func appendHead(dst []byte, field protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, field, bytesKind), uint64(size))
}

func appendText(dst []byte, field protowire.Number, text string) []byte {
	return append(appendHead(dst, field, len(text)), text...)
}

func appendNumber(dst []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, field, varintKind), n)
}

func fieldSize(content int) int { return 1 + protowire.SizeBytes(content) }

func textSize(text string) int { return fieldSize(len(text)) }

func numberSize(n uint64) int {
	if n == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(n)
}

// fields reads the fields of a message one by one.
type fields struct {
	rest   []byte
	number protowire.Number
	kind   protowire.Type
	bytes  []byte
	varint uint64 // or a fixed64
	err    error
}

// next reads a field, and reports false at the end or an error.
func (f *fields) next() bool {
	if len(f.rest) == 0 || f.err != nil {
		return false
	}
	var n int
	if f.number, f.kind, n = protowire.ConsumeTag(f.rest); n < 0 {
		return f.fail(n)
	}
	f.rest = f.rest[n:]
	switch f.kind {
	case varintKind:
		f.varint, n = protowire.ConsumeVarint(f.rest)
	case fixed64Kind:
		f.varint, n = protowire.ConsumeFixed64(f.rest)
	case bytesKind:
		f.bytes, n = protowire.ConsumeBytes(f.rest)
	default:
		n = protowire.ConsumeFieldValue(f.number, f.kind, f.rest)
	}
	if n < 0 {
		return f.fail(n)
	}
	f.rest = f.rest[n:]
	return true
}

func (f *fields) fail(n int) bool {
	f.err = fmt.Errorf("client: the daemon's answer: %w", protowire.ParseError(n))
	return false
}

func (f *fields) is(number protowire.Number, kind protowire.Type) bool {
	return f.number == number && f.kind == kind
}

// readResult reads a TakeResult into the call that it answers.
func (k *call) readResult(data []byte) {
	k.err = errNoResult
	f := fields{rest: data}
	for f.next() {
		switch {
		case f.is(1, bytesKind):
			k.err = k.readResponse(f.bytes)
		case f.is(2, bytesKind):
			k.err = readError(f.bytes)
		}
	}
	if f.err != nil {
		k.err = f.err
	}
}

var errNoResult = fmt.Errorf("client: the daemon's answer holds no result")

// readResponse reads a TakeResponse; if there is no place for a result, whether
// it allows.
func (k *call) readResponse(data []byte) error {
	k.allowed = false
	if k.result != nil {
		return k.result.read(data, &k.allowed)
	}
	f := fields{rest: data}
	for f.next() {
		if f.is(1, varintKind) {
			k.allowed = f.varint != 0
		}
	}
	return f.err
}

func (r *Result) read(data []byte, allowed *bool) error {
	r.DeniedBy = -1
	f := fields{rest: data}
	for f.next() {
		switch {
		case f.is(1, varintKind):
			r.Allowed = f.varint != 0
		case f.is(2, bytesKind):
			var l Limited
			if err := l.read(f.bytes); err != nil {
				return err
			}
			r.Limits = append(r.Limits, l)
		case f.is(3, varintKind):
			r.DeniedBy = int(uint32(f.varint))
		case f.is(4, bytesKind):
			if err := readDuration(&r.RetryAfter, f.bytes); err != nil {
				return err
			}
		case f.is(5, varintKind):
			r.Degraded = f.varint != 0
		}
	}
	if !r.Allowed && r.RetryAfter <= 0 {
		r.RetryAfter = Never
	}
	*allowed = r.Allowed
	return f.err
}

func (l *Limited) read(data []byte) error {
	f := fields{rest: data}
	for f.next() {
		var err error
		switch {
		case f.is(1, varintKind):
			l.Descriptor = int(uint32(f.varint))
		case f.is(2, bytesKind):
			l.Name = string(f.bytes)
		case f.is(3, varintKind):
			l.Algorithm = Algorithm(f.varint)
		case f.is(4, varintKind):
			l.Requests = uint32(f.varint)
		case f.is(5, bytesKind):
			err = readDuration(&l.Period, f.bytes)
		case f.is(6, varintKind):
			l.Capacity = uint32(f.varint)
		case f.is(7, varintKind):
			l.Remaining = uint32(f.varint)
		case f.is(8, varintKind):
			l.Allowed = f.varint != 0
		case f.is(9, bytesKind):
			err = readDuration(&l.RetryAfter, f.bytes)
		case f.is(10, bytesKind):
			err = readDuration(&l.ResetAfter, f.bytes)
		case f.is(11, bytesKind):
			err = readDuration(&l.Wait, f.bytes)
		case f.is(12, varintKind):
			l.takenAt = int64(f.varint)
		case f.is(13, varintKind):
			l.Shadow = f.varint != 0
		case f.is(14, fixed64Kind):
			l.takenBy = f.varint
		}
		if err != nil {
			return err
		}
	}
	if !l.Allowed && l.RetryAfter <= 0 {
		l.RetryAfter = Never
	}
	return f.err
}

func readDuration(d *time.Duration, data []byte) error {
	f := fields{rest: data}
	for f.next() {
		switch {
		case f.is(1, varintKind):
			*d += time.Duration(f.varint) * time.Second
		case f.is(2, varintKind):
			*d += time.Duration(f.varint)
		}
	}
	return f.err
}

// readError reads an Error.
func readError(data []byte) error {
	code, text := codes.Unknown, ""
	f := fields{rest: data}
	for f.next() {
		switch {
		case f.is(1, varintKind):
			code = codes.Code(f.varint)
		case f.is(2, bytesKind):
			text = string(f.bytes)
		}
	}
	if f.err != nil {
		return f.err
	}
	return status.Error(code, text)
}
