package decisionlog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"

	"github.com/klauspost/compress/zstd"
)

// maxZstdWindow bounds what zstd keeps, in bytes: what zstd -19 needs, and more.
const maxZstdWindow = 128 << 20

// Unpack returns what was compressed by gzip or zstd, which it detects from the content, or
// else from itself.
func Unpack(from *bufio.Reader) (io.Reader, error) {
	head, _ := from.Peek(4) // a shorter log is not compressed
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return gzip.NewReader(from)
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		d, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return from, nil
}
