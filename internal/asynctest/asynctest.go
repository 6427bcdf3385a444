// Package asynctest has what tests of concurrent things need: to wait for a
// state that is on its way, a log that can be read while it is written, and a
// clock to move. It imports nothing of the project.
package asynctest

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// Eventually waits until is returns true, and ends the test where it does not
// within a minute. The message of that has what is waited for.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// Buffer is a text that can be read while it is written. The zero value is
// empty.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends to the text.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns the text that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Count returns how often s is in the text that was written so far.
func (b *Buffer) Count(s string) int { return strings.Count(b.String(), s) }
