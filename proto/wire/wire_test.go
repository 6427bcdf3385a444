package wire_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/ratelimitd/ratelimitd/proto/wire"
)

// field is a field of a message in its bytes.
type field struct {
	number protowire.Number
	kind   protowire.Type
	varint uint64
	bytes  string
}

// kinds are those that Fields gives the content of.
var kinds = []protowire.Type{wire.Varint, wire.Fixed64, wire.Bytes}

// fieldsOf returns the fields of these kinds.
func fieldsOf(message string) (found []field, err error) {
	f := wire.Fields[string]{Rest: message}
	for f.Next() {
		for number := protowire.Number(1); number < 40; number++ {
			for _, kind := range kinds {
				switch {
				case !f.Is(number, kind):
				case kind == wire.Bytes:
					found = append(found, field{number: number, kind: kind, bytes: f.Bytes})
				default:
					found = append(found, field{number: number, kind: kind, varint: f.Varint})
				}
			}
		}
	}
	return found, f.Err
}

// protobufFieldsOf is fieldsOf by protobuf's own reader, for a valid message.
func protobufFieldsOf(message []byte) (found []field) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		message = message[n:]
		n = protowire.ConsumeFieldValue(number, kind, message)
		one := field{number: number, kind: kind}
		switch kind {
		case protowire.VarintType:
			one.varint, _ = protowire.ConsumeVarint(message)
		case protowire.Fixed64Type:
			one.varint, _ = protowire.ConsumeFixed64(message)
		case protowire.BytesType:
			content, _ := protowire.ConsumeBytes(message)
			one.bytes = string(content)
		}
		if number < 40 && (kind == wire.Varint || kind == wire.Fixed64 || kind == wire.Bytes) {
			found = append(found, one)
		}
		message = message[n:]
	}
	return found
}

// FuzzFields compares what is read of any bytes with what protobuf reads.
func FuzzFields(f *testing.F) {
	long := bytes.Repeat([]byte("x"), 200)
	f.Add([]byte{})
	f.Add([]byte{0})                                          // no number
	f.Add([]byte{0, 0})                                       // no number, and more
	f.Add([]byte{8})                                          // a tag alone
	f.Add([]byte{8, 0x80})                                    // a number without an end
	f.Add([]byte{10, 3, 'a', 'b'})                            // a text without an end
	f.Add([]byte{10, 0})                                      // an empty text
	f.Add([]byte{0x88, 0x80, 0, 5})                           // a tag that is longer than it need be
	f.Add([]byte{11, 8, 1, 12})                               // a group
	f.Add([]byte{13, 1, 2, 3, 4})                             // 32 bits
	f.Add(protowire.AppendFixed64([]byte{9}, 1<<63))          // 64 bits
	f.Add(protowire.AppendBytes([]byte{10}, long))            // a length of two bytes
	f.Add(protowire.AppendVarint([]byte{8}, 1<<63))           // the longest number
	f.Add(protowire.AppendTag(nil, 20, protowire.VarintType)) // a tag of two bytes, and no more
	f.Add(wire.AppendNumber(wire.AppendText(nil, 20, "a"), 20, 300))
	f.Fuzz(func(t *testing.T, message []byte) {
		got, err := fieldsOf(string(message))
		invalid := proto.Unmarshal(message, &emptypb.Empty{})
		// Protobuf takes groups in each other at a greater depth.
		if (err == nil) != (invalid == nil) && len(message) <= 100 {
			t.Fatalf("% x: got %v, where protobuf says %v", message, err, invalid)
		}
		if err != nil || invalid != nil {
			return
		}
		if want := protobufFieldsOf(message); !slices.Equal(got, want) {
			t.Fatalf("% x: got %v, want %v", message, got, want)
		}
	})
}

// TestAppendWritesWhatProtobufDoes compares all lengths of tags, numbers and texts.
func TestAppendWritesWhatProtobufDoes(t *testing.T) {
	for _, number := range []protowire.Number{1, 15, 16, 31, 32, 2047, 2048, protowire.MaxValidNumber} {
		for _, n := range []uint64{0, 1, 127, 128, 16383, 16384, 1 << 40, 1<<64 - 1} {
			var want []byte
			if n != 0 {
				want = protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), n)
			}
			if got := wire.AppendNumber(nil, number, n); !bytes.Equal(got, want) {
				t.Errorf("number %d in field %d: % x, want % x", n, number, got, want)
			}
		}
		for _, length := range []int{0, 1, 127, 128, 129, 16383, 16384} {
			text := string(bytes.Repeat([]byte("x"), length))
			want := protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), text)
			if got := wire.AppendText(nil, number, text); !bytes.Equal(got, want) {
				t.Errorf("a text of %d bytes in field %d begins % x, want % x", length, number, got[:min(8, len(got))], want[:min(8, len(want))])
			}
			got, start := wire.BeginMessage([]byte("before"), number)
			got = wire.EndMessage(append(got, text...), start)
			if !bytes.Equal(got, append([]byte("before"), want...)) {
				t.Errorf("a message of %d bytes in field %d is another than the text", length, number)
			}
		}
	}
}

func TestAppendDurationWritesWhatProtobufDoes(t *testing.T) {
	for _, d := range []time.Duration{0, 1, time.Second - 1, time.Second, 90*time.Minute + 5, 1<<63 - 1} {
		content, err := proto.Marshal(durationpb.New(d))
		if err != nil {
			t.Fatal(err)
		}
		want := protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), content)
		if got := wire.AppendDuration(nil, 3, d); !bytes.Equal(got, want) {
			t.Errorf("%v: % x, want % x", d, got, want)
		}
	}
}
