package scrape

import "io"

// chunk is how many bytes of a page are gathered before they are sent.
const chunk = 32 << 10

// writer gathers what is appended to its bytes, and writes it in chunks.
type writer struct {
	bytes []byte
	to    io.Writer
	err   error // the first
}

func newWriter(to io.Writer) *writer {
	return &writer{bytes: make([]byte, 0, chunk+chunk/4), to: to}
}

// Write implements io.Writer, for what others encode.
func (w *writer) Write(p []byte) (int, error) {
	w.bytes = append(w.bytes, p...)
	w.flushIfLong()
	return len(p), w.err
}

// flushIfLong reports false if nothing more can be written.
func (w *writer) flushIfLong() bool {
	if len(w.bytes) >= chunk {
		w.flush()
	}
	return w.err == nil
}

func (w *writer) flush() {
	if w.err == nil && len(w.bytes) > 0 {
		_, w.err = w.to.Write(w.bytes)
	}
	w.bytes = w.bytes[:0]
}
