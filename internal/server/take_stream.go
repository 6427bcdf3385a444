package server

import (
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// takesInFlight is how many requests of one stream are decided at a time where
// the store waits. A caller who does not read is held up once it has so many
// answers to come.
const takesInFlight = 4096

// slotBytes is how much memory a request may hold for one slot of those in
// flight. A large one counts as several, so that the bound is one of memory too.
const slotBytes = 4096

// takeStream decides the requests of a stream as they come. It ends when the
// caller has sent all, or goes, or when the server stops or the connection is
// old; then all that was read is answered, and nothing is decided that was not.
type takeStream struct {
	*api
	grpc.ServerStream

	// mu is held while a message is taken over, so that none is once stopped.
	mu      sync.Mutex
	stopped bool

	// Where the store waits: slots bounds what is in flight, and answered has
	// what the writer sends.
	slots    chan struct{}
	answered *itemQueue
	deciding sync.WaitGroup
}

func (a *api) takeStream(stream grpc.ServerStream) error {
	s := &takeStream{api: a, ServerStream: stream}
	var writer chan error
	if a.storeWaits {
		s.slots, s.answered = make(chan struct{}, takesInFlight), newItemQueue()
		writer = make(chan error, 1)
		go func() { writer <- s.write() }()
	}
	reader := make(chan error, 1)
	go func() { reader <- s.read() }()
	var old <-chan time.Time
	if rest, ok := untilOld(stream.Context(), a.age, a.grace); ok {
		timer := time.NewTimer(rest)
		defer timer.Stop()
		old = timer.C
	}
	var err error
	select {
	case err = <-reader:
	case <-a.stopping.Done():
		err = s.drained("the daemon stops")
	case <-old:
		err = s.drained("the connection is old")
	}
	s.mu.Lock() // waits for a message that is being taken over
	s.stopped = true
	s.mu.Unlock()
	if writer != nil {
		s.deciding.Wait()
		s.answered.close()
		if failed := <-writer; err == nil {
			err = failed
		}
	}
	return err
}

// drained is the end of a stream whose caller would have gone on.
func (s *takeStream) drained(why string) error {
	// A proxy's UNAVAILABLE does not say so much.
	s.SetTrailer(metadata.Pairs("ratelimit-drained", "true"))
	return status.Error(codes.Unavailable, why+"; what has no answer was not decided")
}

// read takes over messages until there are no more. It is not waited for where
// the server stops: then the end of the stream ends it.
func (s *takeStream) read() (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.panics.add(p)
			err = status.Error(codes.Internal, "internal error")
		}
	}()
	for {
		t := &takes{door: s.door, numbered: true}
		if err := s.RecvMsg(t); err != nil {
			t.release()
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

// takeOver sees to it that each request of a message is answered.
func (s *takeStream) takeOver(t *takes) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || t.err != nil {
		t.release()
		return t.err
	}
	if !s.storeWaits {
		t.answerAll(s.Context())
		return s.SendMsg(t)
	}
	for i, it := range t.items {
		it.slots = 1
		if i == 0 { // for all, which hold the message together
			it.slots = min(1+t.holds()/slotBytes, takesInFlight)
		}
		for range it.slots {
			select {
			case s.slots <- struct{}{}:
			case <-s.Context().Done():
				return status.FromContextError(s.Context().Err()).Err()
			}
		}
		s.deciding.Go(func() {
			s.answerItem(s.Context(), it)
			s.answered.add(it)
		})
	}
	return nil
}

// write sends answers, those that are there in one message, until all are.
func (s *takeStream) write() error {
	var failed error
	for {
		t := &takes{door: s.door, numbered: true, items: s.answered.next(s.bounds.Takes)}
		if len(t.items) == 0 {
			return failed
		}
		held := 0
		for _, it := range t.items {
			held += it.slots
		}
		if failed == nil {
			failed = s.SendMsg(t)
		} else {
			t.release()
		}
		for range held {
			<-s.slots
		}
	}
}
