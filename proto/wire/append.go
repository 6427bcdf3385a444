package wire

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// These are the kinds of fields.
const (
	Varint  = protowire.VarintType
	Fixed64 = protowire.Fixed64Type
	Bytes   = protowire.BytesType
)

// AppendText appends a field of text or bytes.
func AppendText(dst []byte, field protowire.Number, text string) []byte {
	if isShort(field, uint64(len(text))) {
		return append(append(dst, byte(field)<<3|byte(Bytes), byte(len(text))), text...)
	}
	return protowire.AppendString(protowire.AppendTag(dst, field, Bytes), text)
}

// AppendNumber appends a number, unless it is 0.
func AppendNumber(dst []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return dst
	}
	if isShort(field, n) {
		return append(dst, byte(field)<<3|byte(Varint), byte(n))
	}
	if isShort(field, 0) {
		return protowire.AppendVarint(append(dst, byte(field)<<3|byte(Varint)), n)
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, field, Varint), n)
}

// isShort reports whether a tag and the number that follows it have one byte each, as
// most do: appending them one by one would take several times as long.
func isShort(field protowire.Number, n uint64) bool { return field < 16 && n < 0x80 }

// BeginMessage begins a field that has content; EndMessage ends it. It leaves room
// for a length of one byte, which suffices for most.
func BeginMessage(dst []byte, field protowire.Number) (_ []byte, start int) {
	if isShort(field, 0) {
		dst = append(dst, byte(field)<<3|byte(Bytes), 0)
	} else {
		dst = append(protowire.AppendTag(dst, field, Bytes), 0)
	}
	return dst, len(dst)
}

// EndMessage ends the field that begins at start.
func EndMessage(dst []byte, start int) []byte {
	n := len(dst) - start
	if n < 0x80 {
		dst[start-1] = byte(n)
		return dst
	}
	var room [9]byte
	length := protowire.AppendVarint(room[:0], uint64(n))
	dst = append(dst, length[1:]...)
	copy(dst[start+len(length)-1:], dst[start:start+n])
	copy(dst[start-1:], length)
	return dst
}

// AppendDuration appends a field that is a Duration (google/protobuf/duration.proto),
// even if it is 0. It is not negative.
func AppendDuration(dst []byte, field protowire.Number, d time.Duration) []byte {
	dst, start := BeginMessage(dst, field)
	dst = AppendNumber(dst, 1, uint64(d/time.Second))
	dst = AppendNumber(dst, 2, uint64(d%time.Second))
	return EndMessage(dst, start)
}
