package takeapi

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/server/overload"
	"github.com/ratelimitd/ratelimitd/internal/server/transport"
	"github.com/ratelimitd/ratelimitd/proto/wire"
)

const (
	// takesInFlight is how many requests of one stream are decided at a time if the
	// store waits. A caller that does not read is held back when this many answers wait
	// for it. They take up to a megabyte.
	takesInFlight = (1 << 20) / waitingItemCost
	// takeStreamCost is what a stream holds, in bytes: its goroutines, and answers that gRPC
	// has not sent.
	takeStreamCost = 96 << 10
	// streamMessage is how many bytes of answers a message has before the next one
	// begins. A message is longer by one answer at most.
	streamMessage = 64 << 10
)

// takeStream decides the requests of a stream as they come. It ends when the caller has
// sent all or disconnects, when the server stops, and when the connection is old. Then
// all requests that were read are answered, and no others are decided.
type takeStream struct {
	*API
	grpc.ServerStream
	conn *overload.Conn
	ctx  context.Context // of the requests

	// mu is held while a message is taken over, so that none is taken over once stopped
	// is set.
	mu      sync.Mutex
	stopped bool

	// If the store waits, slots bounds the requests in flight, and answered has
	// the answers for the writer.
	slots    *semaphore.Weighted
	answered *itemQueue
	deciding sync.WaitGroup
}

func (a *API) takeStream(stream grpc.ServerStream) error {
	s := &takeStream{API: a, ServerStream: stream, conn: overload.Of(stream.Context()), ctx: a.withCredentials(stream.Context())}
	if err := s.conn.Reserve(takeStreamCost); err != nil {
		return err
	}
	defer s.conn.Add(-takeStreamCost)
	var writer chan error
	if a.RemoteStore {
		s.slots, s.answered = semaphore.NewWeighted(takesInFlight), newItemQueue()
		writer = make(chan error, 1)
		go func() { writer <- s.write() }()
	}
	reader := make(chan error, 1)
	go func() { reader <- s.read() }()
	var old <-chan time.Time
	if rest, ok := transport.UntilOld(stream.Context(), a.Age, a.Grace); ok {
		timer := time.NewTimer(rest)
		defer timer.Stop()
		old = timer.C
	}
	var err error
	select {
	case err = <-reader:
	case <-a.Stopping.Done():
		err = s.drained("the daemon stops")
	case <-old:
		err = s.drained("the connection is old")
	}
	s.mu.Lock() // waits for a message that is being taken over
	s.stopped = true
	s.mu.Unlock()
	s.deciding.Wait()
	if writer != nil {
		s.answered.close()
		if failed := <-writer; err == nil {
			err = failed
		}
	}
	return err
}

// drained ends a stream before its caller does.
func (s *takeStream) drained(why string) error {
	// This distinguishes it from the UNAVAILABLE of a proxy.
	s.SetTrailer(metadata.Pairs("ratelimit-drained", "true"))
	return status.Error(codes.Unavailable, why+"; what has no answer was not decided")
}

// streamTakes is a TakeStreamRequest. Its requests are read one by one.
type streamTakes struct {
	api     *API
	message string
	err     error
}

func (t *streamTakes) ReadWire(message string) error {
	t.message = message
	_, tooMany, err := t.api.countTakes(message)
	t.err = tooMany
	return err
}

// streamAnswers is the bytes of a TakeStreamResponse.
type streamAnswers struct {
	overload.Charge
	bytes []byte
}

func (a *streamAnswers) AppendWire([]byte) []byte { return a.bytes }

// Release does nothing: the bytes belong to the answer.
func (a *streamAnswers) Release() {}

// read takes over messages until there are no more. takeStream does not wait for
// it when the server stops; the end of the stream ends it.
func (s *takeStream) read() (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.Panics.Add(p)
			err = status.Error(codes.Internal, "internal error")
		}
	}()
	for {
		t := &streamTakes{api: s.API}
		if err := s.RecvMsg(t); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := s.takeOver(t); err != nil {
			return err
		}
	}
}

// takeOver answers each request of a message, or has it answered.
func (s *takeStream) takeOver(t *streamTakes) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || t.err != nil {
		return t.err
	}
	if !s.RemoteStore {
		return s.answerInTurn(t)
	}
	var items []*item
	began, first := s.Decider.Clock(), true
	f := wire.Fields[string]{Rest: t.message}
	for f.Next() {
		if !f.Is(1, wire.Bytes) {
			continue
		}
		slots := 1
		if first { // it pays for the message, which all requests keep
			slots += min(len(t.message)/waitingItemCost, takesInFlight/2)
		}
		first = false
		if !s.slots.TryAcquire(int64(slots)) {
			s.decide(items) // they hold some of the slots
			items = nil
			if err := s.slots.Acquire(s.Context(), int64(slots)); err != nil {
				return status.FromContextError(err).Err()
			}
		}
		if err := s.conn.Reserve(int64(slots) * waitingItemCost); err != nil {
			s.decide(items)
			return err // the slots end with the stream
		}
		it := new(item)
		s.readItem(it, f.Bytes, true, began)
		it.slots = slots
		if items = append(items, it); len(items) == maxTogether {
			s.decide(items)
			items = nil
		}
	}
	s.decide(items)
	return nil
}

// decide has items answered while the next ones are read.
func (s *takeStream) decide(items []*item) {
	if len(items) == 0 {
		return
	}
	alone := func(it *item) {
		s.answerItem(s.ctx, it)
		s.answered.add(it)
	}
	s.deciding.Go(func() { s.answerTogether(s.ctx, items, alone, s.answered.add) })
}

func (s *takeStream) letGo(slots int) {
	s.slots.Release(int64(slots))
	s.conn.Add(-int64(slots) * waitingItemCost)
}

// answerInTurn decides the requests of a message one after the other, and sends
// the answers.
func (s *takeStream) answerInTurn(t *streamTakes) error {
	out := make([]byte, 0, min(len(t.message), streamMessage)) // about as long as the takes
	began := s.Decider.Clock()
	answers := s.Answers(began)
	defer answers.End()
	it := new(item)
	f := wire.Fields[string]{Rest: t.message}
	for f.Next() {
		if !f.Is(1, wire.Bytes) {
			continue
		}
		s.readItem(it, f.Bytes, true, began)
		it.answers = &answers
		s.answerItem(s.ctx, it)
		out = it.appendNumbered(out)
		if len(out) >= streamMessage {
			if err := s.send(out); err != nil {
				return err
			}
			out = nil
		}
	}
	return s.send(out)
}

func (s *takeStream) send(answers []byte) error {
	return s.SendMsg(&streamAnswers{bytes: answers})
}

// write sends answers until all are sent. Answers that are ready together share
// messages.
func (s *takeStream) write() error {
	var failed error
	for {
		items := s.answered.next(s.Bounds.Takes)
		if len(items) == 0 {
			return failed
		}
		var out []byte
		held := 0
		for i, it := range items {
			out = it.appendNumbered(out)
			held += it.slots
			if len(out) < streamMessage && i < len(items)-1 {
				continue
			}
			if failed == nil {
				failed = s.send(out)
			}
			s.letGo(held)
			out, held = nil, 0
		}
	}
}
