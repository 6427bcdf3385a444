package client

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ratelimitd/ratelimitd/client/internal/stream"
	"github.com/ratelimitd/ratelimitd/internal/wire"
)

// The messages of proto/ratelimit/v1/ratelimit.proto are written and read by
// the numbers of their fields, for generated messages would cost more than all
// the rest that a request needs here.

// appendTake appends the TakeRequest; without its costs it is what requests
// about the same limits have in common.
func appendTake(dst []byte, r *Request, withCosts bool) []byte {
	dst = wire.AppendText(dst, 1, r.Domain)
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
			dst = wire.AppendText(dst, 1, e.Key)
			dst = wire.AppendText(dst, 2, e.Value)
		}
		if hasCost {
			dst = protowire.AppendVarint(protowire.AppendTag(dst, 2, wire.Varint), d.Cost)
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
	dst = wire.AppendNumber(dst, 1, uint64(n.Requests))
	dst = appendHead(dst, 2, durationSize(n.Period))
	dst = wire.AppendNumber(dst, 1, uint64(n.Period/time.Second))
	dst = wire.AppendNumber(dst, 2, uint64(n.Period%time.Second))
	return wire.AppendNumber(dst, 3, uint64(n.Burst))
}

func durationSize(d time.Duration) int {
	return numberSize(uint64(d/time.Second)) + numberSize(uint64(d%time.Second))
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
	return protowire.AppendVarint(protowire.AppendTag(dst, field, wire.Bytes), uint64(size))
}

func fieldSize(content int) int { return 1 + protowire.SizeBytes(content) }

func textSize(text string) int { return fieldSize(len(text)) }

func numberSize(n uint64) int {
	if n == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(n)
}

// readResponse reads a TakeResponse; if there is no place for a result, whether
// it allows.
func (k *call) readResponse(data []byte) error {
	k.allowed = false
	if k.result != nil {
		return k.result.read(data, &k.allowed)
	}
	f := wire.Fields[[]byte]{Rest: data}
	for f.Next() {
		if f.Is(1, wire.Varint) {
			k.allowed = f.Varint != 0
		}
	}
	return stream.Unreadable(f.Err)
}

func (r *Result) read(data []byte, allowed *bool) error {
	r.DeniedBy = -1
	f := wire.Fields[[]byte]{Rest: data}
	for f.Next() {
		switch {
		case f.Is(1, wire.Varint):
			r.Allowed = f.Varint != 0
		case f.Is(2, wire.Bytes):
			var l Limited
			if err := l.read(f.Bytes); err != nil {
				return err
			}
			r.Limits = append(r.Limits, l)
		case f.Is(3, wire.Varint):
			r.DeniedBy = int(uint32(f.Varint))
		case f.Is(4, wire.Bytes):
			if err := readDuration(&r.RetryAfter, f.Bytes); err != nil {
				return err
			}
		case f.Is(5, wire.Varint):
			r.Degraded = f.Varint != 0
		}
	}
	if !r.Allowed && r.RetryAfter <= 0 {
		r.RetryAfter = Never
	}
	*allowed = r.Allowed
	return stream.Unreadable(f.Err)
}

func (l *Limited) read(data []byte) error {
	f := wire.Fields[[]byte]{Rest: data}
	for f.Next() {
		var err error
		switch {
		case f.Is(1, wire.Varint):
			l.Descriptor = int(uint32(f.Varint))
		case f.Is(2, wire.Bytes):
			l.Name = string(f.Bytes)
		case f.Is(3, wire.Varint):
			l.Algorithm = Algorithm(f.Varint)
		case f.Is(4, wire.Varint):
			l.Requests = uint32(f.Varint)
		case f.Is(5, wire.Bytes):
			err = readDuration(&l.Period, f.Bytes)
		case f.Is(6, wire.Varint):
			l.Capacity = uint32(f.Varint)
		case f.Is(7, wire.Varint):
			l.Remaining = uint32(f.Varint)
		case f.Is(8, wire.Varint):
			l.Allowed = f.Varint != 0
		case f.Is(9, wire.Bytes):
			err = readDuration(&l.RetryAfter, f.Bytes)
		case f.Is(10, wire.Bytes):
			err = readDuration(&l.ResetAfter, f.Bytes)
		case f.Is(11, wire.Bytes):
			err = readDuration(&l.Wait, f.Bytes)
		case f.Is(12, wire.Varint):
			l.takenAt = int64(f.Varint)
		case f.Is(13, wire.Varint):
			l.Shadow = f.Varint != 0
		case f.Is(14, wire.Fixed64):
			l.takenBy = f.Varint
		}
		if err != nil {
			return err
		}
	}
	if !l.Allowed && l.RetryAfter <= 0 {
		l.RetryAfter = Never
	}
	return stream.Unreadable(f.Err)
}

func readDuration(d *time.Duration, data []byte) error {
	f := wire.Fields[[]byte]{Rest: data}
	for f.Next() {
		switch {
		case f.Is(1, wire.Varint):
			*d += time.Duration(f.Varint) * time.Second
		case f.Is(2, wire.Varint):
			*d += time.Duration(f.Varint)
		}
	}
	return stream.Unreadable(f.Err)
}
