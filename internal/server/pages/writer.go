package pages

import "io"

// Chunk is how many bytes of a page are gathered before they are sent.
const Chunk = 32 << 10

// Writer gathers what is appended to its bytes, and writes it in chunks, so that a page
// takes the same memory however long it is.
type Writer struct {
	Bytes []byte
	to    io.Writer
	err   error // the first
}

// NewWriter returns a Writer to a client.
func NewWriter(to io.Writer) *Writer {
	return &Writer{Bytes: make([]byte, 0, Chunk+Chunk/4), to: to}
}

// Write implements io.Writer, for what others encode.
func (w *Writer) Write(p []byte) (int, error) {
	w.Bytes = append(w.Bytes, p...)
	w.FlushIfLong()
	return len(p), w.err
}

// FlushIfLong writes what was gathered if it is a chunk. It reports false if nothing more
// can be written.
func (w *Writer) FlushIfLong() bool {
	if len(w.Bytes) >= Chunk {
		w.Flush()
	}
	return w.err == nil
}

// Flush writes what was gathered.
func (w *Writer) Flush() {
	if w.err == nil && len(w.Bytes) > 0 {
		_, w.err = w.to.Write(w.Bytes)
	}
	w.Bytes = w.Bytes[:0]
}

// Err returns why nothing more can be written, or nil.
func (w *Writer) Err() error { return w.err }
