package wire

import "google.golang.org/protobuf/encoding/protowire"

// The kinds of fields that the messages have.
const (
	Varint  = protowire.VarintType
	Fixed64 = protowire.Fixed64Type
	Bytes   = protowire.BytesType
)

// AppendText appends a field of text or bytes.
func AppendText(dst []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(dst, field, Bytes), text)
}

// AppendNumber appends a field, which is left out where it is 0.
func AppendNumber(dst []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, field, Varint), n)
}

// BeginMessage begins a field that has content, which EndMessage ends. It
// leaves room for a length of one byte, as most are.
func BeginMessage(dst []byte, field protowire.Number) (_ []byte, start int) {
	dst = append(protowire.AppendTag(dst, field, Bytes), 0)
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
