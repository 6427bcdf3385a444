package adminapi

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/server/overload"
)

// Behind an http.Handler gRPC reads all that a caller sends, whether or not it is
// used, and holds 16 KiB for each piece of it, however small. So it is handed whole
// messages, and no more of them than a call may have.

const (
	// prefixSize is the size of what precedes a message: whether it is compressed, and
	// its length.
	prefixSize = 5
	// messageByteCost is how many bytes a byte of a message becomes.
	messageByteCost = 4
	// A reflection call may have this many messages, of this many bytes each: they name
	// symbols and files.
	maxReflections, maxReflection = 64, 4 << 10
	// reflectionCost is what gRPC may hold for these, in bytes.
	reflectionCost = maxReflections * 16 << 10
)

// messageReader reads messages of a call whole. After the last one allowed it is at its
// end, whatever else comes.
type messageReader struct {
	io.ReadCloser
	ctx context.Context
	// left is how many messages there may still be, and max bounds each.
	left, max int
	whole     bytes.Buffer
}

// Read implements io.Reader.
func (m *messageReader) Read(b []byte) (int, error) {
	if m.whole.Len() == 0 {
		if err := m.next(); err != nil {
			return 0, err
		}
	}
	return m.whole.Read(b)
}

// next reads a message into whole, charged for as long as the call takes.
func (m *messageReader) next() error {
	if m.left == 0 {
		return io.EOF
	}
	m.left--
	m.whole.Reset()
	if _, err := io.CopyN(&m.whole, m.ReadCloser, prefixSize); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(m.whole.Bytes()[1:])
	if length > uint32(m.max) {
		return status.Errorf(codes.ResourceExhausted, "a message of %d bytes; at most %d are read", length, m.max)
	}
	if err := overload.Reserve(m.ctx, messageByteCost*int64(length)); err != nil {
		return err
	}
	if _, err := io.CopyN(&m.whole, m.ReadCloser, int64(length)); err == io.EOF {
		return io.ErrUnexpectedEOF
	} else if err != nil {
		return err
	}
	return nil
}

// boundReflection lets gRPC read no more of a reflection call than it may have. Its error
// is a status.
func boundReflection(r *http.Request) error {
	r.Body = &messageReader{ReadCloser: r.Body, ctx: r.Context(), left: maxReflections, max: maxReflection}
	return overload.Reserve(r.Context(), reflectionCost)
}

// readMessage reads the message of a call, and lets gRPC read no more. Its error is a
// status; gRPC finds what else is wrong with the body.
func readMessage(r *http.Request) error {
	m := &messageReader{ReadCloser: r.Body, ctx: r.Context(), left: 1, max: maxMessage}
	r.Body = m
	err := m.next()
	if _, ok := status.FromError(err); ok {
		return err
	}
	return nil
}
