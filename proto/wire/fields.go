package wire

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields goes through the fields of an encoded protobuf message:
//
//	f := wire.Fields[string]{Rest: message}
//	for f.Next() { ... }
//	if f.Err != nil { ... }
//
// f gives parts of the message, and copies nothing.
type Fields[T string | []byte] struct {
	Rest T
	Err  error

	// The current field: its tag, and its content or its number.
	number protowire.Number
	kind   protowire.Type
	Bytes  T
	Varint uint64
}

var (
	errTruncated = errors.New("the message ends in the middle of a field")
	errNotUTF8   = errors.New("a text is not UTF-8")
	errNoNumber  = errors.New("a field has no valid number")
)

// Next reads the next field, or returns false at the end and at an error.
func (f *Fields[T]) Next() bool {
	if f.Err != nil {
		return false
	}
	// Most fields have a tag of one byte, and a number or a length of one byte.
	if rest := f.Rest; len(rest) >= 2 && rest[0] < 0x80 && rest[1] < 0x80 {
		f.number, f.kind = protowire.Number(rest[0]>>3), protowire.Type(rest[0]&7)
		n := int(rest[1])
		switch {
		case f.number == 0:
		case f.kind == Bytes && n <= len(rest)-2:
			f.Bytes, f.Rest = rest[2:2+n], rest[2+n:]
			return true
		case f.kind == Varint:
			f.Varint, f.Rest = uint64(n), rest[2:]
			return true
		}
	}
	return f.nextOfAny()
}

// nextOfAny is Next for a field of any kind and length.
func (f *Fields[T]) nextOfAny() bool {
	if len(f.Rest) == 0 {
		return false
	}
	tag, ok := f.ReadVarint()
	if !ok {
		return false
	}
	f.number, f.kind = protowire.DecodeTag(tag)
	if f.number < protowire.MinValidNumber || f.number > protowire.MaxValidNumber {
		f.Err = errNoNumber
		return false
	}
	switch f.kind {
	case protowire.VarintType:
		f.Varint, ok = f.ReadVarint()
		return ok
	case protowire.Fixed64Type:
		f.Varint, ok = f.ReadFixed64()
		return ok
	case protowire.BytesType:
		n, ok := f.ReadVarint()
		if ok && n > uint64(len(f.Rest)) {
			f.Err = errTruncated
		}
		if f.Err != nil {
			return false
		}
		f.Bytes, f.Rest = f.Rest[:n], f.Rest[n:]
		return true
	}
	f.Err = f.skip(0)
	return f.Err == nil
}

// skip skips the content of the current field, if it is of a kind that no message here
// has. It copies nothing. It bounds the nesting of groups, which protobuf does not.
func (f *Fields[T]) skip(depth int) error {
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

// skipGroup skips the fields of a group up to its end.
func (f *Fields[T]) skipGroup(group protowire.Number, depth int) error {
	for {
		tag, ok := f.ReadVarint()
		if !ok {
			return f.Err
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
			if _, ok := f.ReadVarint(); !ok {
				return f.Err
			}
		case protowire.BytesType:
			n, ok := f.ReadVarint()
			if !ok {
				return f.Err
			}
			if n > uint64(len(f.Rest)) {
				return errTruncated
			}
			f.Rest = f.Rest[n:]
		default:
			if err := f.skip(depth + 1); err != nil {
				return err
			}
		}
	}
}

func (f *Fields[T]) drop(n int) error {
	if n > len(f.Rest) {
		return errTruncated
	}
	f.Rest = f.Rest[n:]
	return nil
}

// ReadFixed64 reads a number of eight bytes, as in packed fields.
func (f *Fields[T]) ReadFixed64() (v uint64, ok bool) {
	const size = 8
	if len(f.Rest) < size {
		f.Err = errTruncated
		return 0, false
	}
	for i := range size {
		v |= uint64(f.Rest[i]) << (8 * i)
	}
	f.Rest = f.Rest[size:]
	return v, true
}

// ReadVarint reads a number as in packed fields.
func (f *Fields[T]) ReadVarint() (v uint64, ok bool) {
	for i := 0; i < len(f.Rest); i++ {
		b := f.Rest[i]
		if i == 9 && b > 1 {
			break
		}
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			f.Rest = f.Rest[i+1:]
			return v, true
		}
	}
	f.Err = errTruncated
	return 0, false
}

// Is reports whether the current field has this number and kind. A field with another
// kind is unknown, as in protobuf.
func (f *Fields[T]) Is(number protowire.Number, kind protowire.Type) bool {
	return f.number == number && f.kind == kind
}

// Text returns the content, and fails if it is not UTF-8.
func (f *Fields[T]) Text() string {
	text := string(f.Bytes)
	if !utf8.ValidString(text) {
		f.Err = errNotUTF8
	}
	return text
}

// Pair reads a message of two texts, a key in field 1 and a value in field 2. The
// value may be any bytes, or only the UTF-8 that protobuf knows. The texts are
// parts of the message.
func Pair(message string, anyBytes bool) (key, value string, err error) {
	f := Fields[string]{Rest: message}
	for f.Next() {
		switch {
		case f.Is(1, Bytes):
			key = f.Text()
		case f.Is(2, Bytes):
			value = f.Bytes
			if !anyBytes {
				value = f.Text()
			}
		}
	}
	return key, value, f.Err
}
