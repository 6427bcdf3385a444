package endpoint

import (
	"errors"
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/decide"
)

// A JSON body is checked before it becomes messages, which take many times its size. It
// is refused if it has more values than the bounds of a request allow, or is nested
// deeper than any message.

// JSONBounds bound a body.
type JSONBounds struct {
	// Bytes bounds the body, Values the values in it.
	Bytes, Values int
	// Why ends the error about too many values: "than ... have".
	Why string
}

// jsonDepth bounds the nesting of a body. No message here is nested as deep.
const jsonDepth = 16

// BoundsOfRequest returns the bounds of a body with one request. JSON spells a message
// in more bytes than protobuf, but not in more than these, unless on purpose.
func BoundsOfRequest(b decide.Bounds) JSONBounds {
	const (
		entryValues, entryBytes           = 3, 64
		descriptorValues, descriptorBytes = 16, 512
		others, otherBytes                = 16, 4096
	)
	return JSONBounds{
		Values: others + b.Descriptors*(descriptorValues+entryValues*b.Entries),
		Bytes:  otherBytes + 2*b.Bytes + b.Descriptors*(descriptorBytes+entryBytes*b.Entries),
		Why:    fmt.Sprintf("than %d descriptors of %d entries have (settings grpc.max_descriptors, grpc.max_entries)", b.Descriptors, b.Entries),
	}
}

var errJSONDepth = errors.New("it is nested deeper than any message is")

// check counts the values in a body and their nesting. It does not check whether
// the body is JSON.
func (j JSONBounds) check(body []byte) error {
	values, depth := 1, 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			values++
		case '}', ']':
			depth--
		case ',':
			values++
		}
		if depth > jsonDepth {
			return errJSONDepth
		}
		if values > j.Values {
			return fmt.Errorf("it holds more values %s", j.Why)
		}
	}
	return nil
}
