package stream

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/ratelimitd/ratelimitd/proto/wire"
)

// Binding is what keeps the slots of a take: the stream on which it was answered. A take
// with a Binding asks the daemon to bind its slots. One goroutine uses it, except for the
// channel of Ended.
type Binding struct {
	stream *stream // nil if no stream keeps the slots
	number uint64
	// request is that of the take.
	request []byte
	ended   chan struct{}
	// isLost is set before ended is closed, under the mutex of the stream.
	isLost bool
}

// NewBinding returns a binding for one take, whose Request must not change any more.
func NewBinding() *Binding { return &Binding{ended: make(chan struct{})} }

// IsBound reports whether the take was answered on a stream. Otherwise nobody renews its
// slots.
func (b *Binding) IsBound() bool { return b.stream != nil }

// Ended is closed when the stream does not keep the slots any more. Unless they are lost
// there is time to renew them by another take.
func (b *Binding) Ended() <-chan struct{} { return b.ended }

// IsLost reports, once Ended is closed, whether the daemon said that the slots are lost.
func (b *Binding) IsLost() bool { return b.isLost }

// Forget ends the interest in a take that got no slots. A nil Binding has none.
func (b *Binding) Forget() {
	if b == nil || b.stream == nil {
		return
	}
	b.stream.mu.Lock()
	delete(b.stream.bound, b.number)
	b.stream.mu.Unlock()
}

// Refuse ends the binding of a take that was answered without one.
func (b *Binding) Refuse() {
	b.Forget()
	b.stream = nil
}

// Release frees the slots of a take, on the stream that keeps them if there is one, and
// waits for the answer until ctx ends or the timeout is over. request is a TakeRequest,
// which is not changed.
func (p *Pool) Release(ctx context.Context, request []byte, b *Binding) error {
	k := NewTake()
	k.Request, k.IsRelease = request, true
	if b != nil && b.stream != nil {
		b.Forget()
		k.begin(p.options.Timeout)
		err := b.stream.ask(ctx, k)
		k.timer.Stop()
		if !errors.Is(err, errUndecided) {
			return err
		}
	}
	return p.Ask(ctx, k)
}

// AskOn asks on the stream that keeps the slots of b, and on no other.
func (p *Pool) AskOn(ctx context.Context, b *Binding, k *Take) error {
	k.begin(p.options.Timeout)
	defer k.timer.Stop()
	return b.stream.ask(ctx, k)
}

// bind notes that the daemon is asked to bind the slots of a take. The caller has the lock.
func (s *stream) bind(number uint64, k *Take) {
	if s.bound == nil {
		s.bound = make(map[uint64]*Binding)
	}
	b := k.Binding
	s.bound[number] = b
	b.stream, b.number, b.request = s, number, k.Request
}

// endBinding tells the holder that the stream does not keep his slots any more. The caller
// has the lock.
func (s *stream) endBinding(number uint64, isLost bool) {
	if b := s.bound[number]; b != nil {
		delete(s.bound, number)
		b.isLost = isLost
		close(b.ended)
	}
}

// leave has the daemon unbind the slots of an answered take, so that its holder can renew
// them on another stream and the end of this one does not free them. The caller has the
// lock.
func (s *stream) leave(number uint64) {
	if b := s.bound[number]; b != nil {
		s.post(b.request, true)
		s.endBinding(number, false)
	}
}

// leaveAll leaves all that is bound. A daemon that hangs never answers to that. The caller
// has the lock.
func (s *stream) leaveAll() {
	if len(s.bound) == 0 {
		return
	}
	for number := range s.bound {
		if s.takes[number] == nil { // it is answered
			s.leave(number)
		}
	}
	const least = time.Second
	time.AfterFunc(max(s.pool.options.Timeout, least), s.cancel)
}

// post queues a release, or an unbinding, whose answer nobody waits for. The caller has the
// lock, and rouses the writer.
func (s *stream) post(request []byte, onlyUnbinds bool) {
	k := &Take{Request: bytes.Clone(request), IsRelease: true, onlyUnbinds: onlyUnbinds, done: make(chan struct{}, 1)}
	s.last++
	s.takes[s.last] = k
	s.queue = append(s.queue, s.last)
}

// readLost tells those whose numbers are in the field lost of a TakeStreamResponse.
func (s *stream) readLost(numbers []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := wire.Fields[[]byte]{Rest: numbers}
	for len(f.Rest) > 0 {
		number, ok := f.ReadVarint()
		if !ok {
			return f.Err
		}
		s.endBinding(number, true)
	}
	return nil
}
