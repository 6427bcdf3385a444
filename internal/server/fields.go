package server

import (
	"errors"
	"fmt"
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
	errNoNumber  = errors.New("a field has no valid number")
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
		f.err = errNoNumber
		return false
	}
	switch f.kind {
	case protowire.VarintType:
		f.varint, ok = f.readVarint()
		return ok
	case protowire.Fixed64Type:
		f.varint, ok = f.readFixed64()
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
	f.err = f.skip(0)
	return f.err == nil
}

// skip passes over the content of the field at hand, of a kind that no message
// here has. Nothing of it is copied, and what goes into it is bounded: protobuf
// lets groups hold others for as long as there are bytes.
func (f *fields) skip(depth int) error {
	const deepest = 100
	switch f.kind {
	case protowire.Fixed32Type:
		return f.drop(4)
	case protowire.Fixed64Type:
		return f.drop(8)
	case protowire.StartGroupType:
		if depth == deepest {
			return fmt.Errorf("groups are nested more than %d deep", deepest)
		}
		return f.skipGroup(f.number, depth)
	}
	return fmt.Errorf("a field is of the unknown kind %d", f.kind)
}

// skipGroup passes over the fields of a group up to its end.
func (f *fields) skipGroup(group protowire.Number, depth int) error {
	for {
		tag, ok := f.readVarint()
		if !ok {
			return f.err
		}
		f.number, f.kind = protowire.DecodeTag(tag)
		if f.number < protowire.MinValidNumber || f.number > protowire.MaxValidNumber {
			return errNoNumber
		}
		switch f.kind {
		case protowire.EndGroupType:
			if f.number != group {
				return errors.New("a group has the end of another")
			}
			f.kind = protowire.StartGroupType
			return nil
		case protowire.VarintType:
			if _, ok := f.readVarint(); !ok {
				return f.err
			}
		case protowire.BytesType:
			n, ok := f.readVarint()
			if !ok {
				return f.err
			}
			if n > uint64(len(f.rest)) {
				return errTruncated
			}
			f.rest = f.rest[n:]
		default:
			if err := f.skip(depth + 1); err != nil {
				return err
			}
		}
	}
}

func (f *fields) drop(n int) error {
	if n > len(f.rest) {
		return errTruncated
	}
	f.rest = f.rest[n:]
	return nil
}

func (f *fields) readFixed64() (v uint64, ok bool) {
	const size = 8
	if len(f.rest) < size {
		f.err = errTruncated
		return 0, false
	}
	for i := range size {
		v |= uint64(f.rest[i]) << (8 * i)
	}
	f.rest = f.rest[size:]
	return v, true
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
