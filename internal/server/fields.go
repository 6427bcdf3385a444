package server

import (
	"errors"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// fields goes through the fields of a protobuf message in its bytes:
//
//	f := fields{rest: message}
//	for f.next() { ... }
//	if f.err != nil { ... }
//
// What f gives are parts of the message, which nothing copies.
type fields struct {
	rest string
	err  error

	// The field at hand: its tag, and its content or its number.
	number protowire.Number
	kind   protowire.Type
	bytes  string
	varint uint64
}

var (
	errTruncated = errors.New("the message ends in the middle of a field")
	errNotUTF8   = errors.New("a text is not UTF-8")
)

// next reads the next field, or returns false at the end and at an error.
func (f *fields) next() bool {
	if f.rest == "" || f.err != nil {
		return false
	}
	tag, ok := f.readVarint()
	if !ok {
		return false
	}
	f.number, f.kind = protowire.DecodeTag(tag)
	if f.number < protowire.MinValidNumber || f.number > protowire.MaxValidNumber {
		f.err = errors.New("a field has no valid number")
		return false
	}
	switch f.kind {
	case protowire.VarintType:
		f.varint, ok = f.readVarint()
		return ok
	case protowire.BytesType:
		n, ok := f.readVarint()
		if ok && n > uint64(len(f.rest)) {
			f.err = errTruncated
		}
		if f.err != nil {
			return false
		}
		f.bytes, f.rest = f.rest[:n], f.rest[n:]
		return true
	}
	return f.skip()
}

// skip passes over a field of a kind that no message here has.
func (f *fields) skip() bool {
	n := protowire.ConsumeFieldValue(f.number, f.kind, []byte(f.rest))
	if n < 0 {
		f.err = protowire.ParseError(n)
		return false
	}
	f.rest = f.rest[n:]
	return true
}

func (f *fields) readVarint() (v uint64, ok bool) {
	for i := 0; i < len(f.rest); i++ {
		b := f.rest[i]
		if i == 9 && b > 1 {
			break
		}
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			f.rest = f.rest[i+1:]
			return v, true
		}
	}
	f.err = errTruncated
	return 0, false
}

// is reports whether the field at hand is this one. One of that number and
// another kind is unknown, and unknown fields mean nothing.
func (f *fields) is(number protowire.Number, kind protowire.Type) bool {
	return f.number == number && f.kind == kind
}

// text returns the content as the text that it must be.
func (f *fields) text() string {
	if !utf8.ValidString(f.bytes) {
		f.err = errNotUTF8
	}
	return f.bytes
}
