package endpoint

import (
	"errors"
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/server/decide"
)

// A body in JSON is looked over before it becomes messages, for those take many
// times its size: what holds more values than the bounds of a request allow, or
// is nested deeper than any message is, is refused with nothing made of it.

// JSONBounds bound a body.
type JSONBounds struct {
	// bytes of the body, and values in it.
	Bytes, Values int
	// why is what to tell of too many values.
	why string
}

// jsonDepth is how deep a body is nested at most, which is more than any
// message here.
const jsonDepth = 16

// BoundsOfRequest bounds a body that holds one request. JSON spells a message in more
// bytes than the wire does, but in no more than these unless it is made to.
func BoundsOfRequest(b decide.Bounds) JSONBounds {
	const (
		entryValues, entryBytes           = 3, 64
		descriptorValues, descriptorBytes = 16, 512
		others, otherBytes                = 16, 4096
	)
	return JSONBounds{
		Values: others + b.Descriptors*(descriptorValues+entryValues*b.Entries),
		Bytes:  otherBytes + 2*b.Bytes + b.Descriptors*(descriptorBytes+entryBytes*b.Entries),
		why:    fmt.Sprintf("than %d descriptors of %d entries have (settings grpc.max_descriptors, grpc.max_entries)", b.Descriptors, b.Entries),
	}
}

var errJSONDepth = errors.New("it is nested deeper than any message is")

// check counts the values in a body, and what they are nested in. Whether it is
// JSON at all is not looked at.
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
			return fmt.Errorf("it holds more values %s", j.why)
		}
	}
	return nil
}
