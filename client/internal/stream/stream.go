package stream

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
	"github.com/ratelimitd/ratelimitd/proto/wire"
)

// stream sends takes to one daemon. They wait in its queue while the writer is busy with
// earlier ones.
type stream struct {
	pool   *Pool
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // holds a value if the writer has something to do

	mu      sync.Mutex
	takes   map[uint64]*Take // those without an answer, by number
	queue   []uint64         // the numbers of those not yet sent; some have given up
	last    uint64           // the number given last
	answers uint64           // how many have come
	skipped uint64           // how many gave up before they were sent
	rpc     grpc.ClientStream
	at      connection // known once rpc is set
	sending bool       // a goroutine has a message in hand
	retired bool       // gets no more takes
	ended   bool       // has no more takes
}

// connection identifies a connection of a client.
type connection struct{ daemon, local string }

func (p *Pool) newStream() *stream {
	s := &stream{pool: p, wake: make(chan struct{}, 1), takes: make(map[uint64]*Take)}
	s.ctx, s.cancel = context.WithCancel(p.ctx)
	return s
}

// place returns the stream's connection, which is zero before the stream is open.
func (s *stream) place() connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

var streamDesc = grpc.StreamDesc{ClientStreams: true, ServerStreams: true}

// open opens the stream. An error means that the connection failed and nothing was sent.
func (s *stream) open() (grpc.ClientStream, error) {
	rpc, err := s.pool.conn.NewStream(s.ctx, &streamDesc, ratelimitv1.RateLimitService_TakeStream_FullMethodName, grpc.ForceCodecV2(codec{}))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rpc = rpc
	// Asking for the peer commits gRPC to this attempt: it never resends by itself a take
	// that may have been read.
	if p, ok := peer.FromContext(rpc.Context()); ok {
		s.at.daemon = p.Addr.String()
		if p.LocalAddr != nil {
			s.at.local = p.LocalAddr.String()
		}
	}
	return rpc, nil
}

// run serves the stream until its end, on rpc, or on one that it opens if rpc is nil.
func (s *stream) run(rpc grpc.ClientStream) {
	defer s.cancel()
	if rpc == nil {
		var err error
		if rpc, err = s.open(); err != nil {
			s.close(err, false)
			return
		}
	}
	var writer sync.WaitGroup
	writer.Go(func() { s.write(rpc) })
	err := s.read(rpc)
	s.pool.drop(s)
	s.close(err, s.isUndecided(rpc, err))
	s.cancel()
	writer.Wait()
}

// write sends the queue. The takes that arrive while one message is
// made and handed over are the next message.
func (s *stream) write(rpc grpc.ClientStream) {
	for {
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
		// Let goroutines that are about to ask join in: a message costs more than a take.
		runtime.Gosched()
		for data := s.next(false); data != nil; data = s.next(true) {
			if rpc.SendMsg(&message{data}) != nil {
				return // the reader learns why
			}
		}
		if s.isFinished() {
			_ = rpc.CloseSend() // never fails
			return
		}
	}
}

// next returns the next message. It returns nil if nothing waits, or if another goroutine
// has a message in hand: that goroutine then wakes the writer.
func (s *stream) next(hadOne bool) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sending && !hadOne {
		return nil
	}
	data := s.gather()
	s.sending = data != nil
	return data
}

// gather makes a message of as many takes in the queue as fit.
func (s *stream) gather() []byte {
	var data []byte
	i, takes := 0, 0
	for ; i < len(s.queue) && takes < maxTakes; i++ {
		k := s.takes[s.queue[i]]
		if k == nil {
			s.skipped++
			continue
		}
		if data == nil {
			overhead := 16
			if k.Trace.isSet() {
				overhead += len(k.Trace)
			}
			data = make([]byte, 0, min(maxBytes, (len(s.queue)-i)*(len(k.Request)+overhead)))
		}
		if takes > 0 && len(data)+len(k.Request) > maxBytes {
			break
		}
		data = appendNumbered(data, s.queue[i], k)
		takes++
	}
	s.queue = s.queue[:copy(s.queue, s.queue[i:])]
	return data
}

// isFinished reports whether nothing will be sent any more.
func (s *stream) isFinished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retired && !s.sending && len(s.queue) == 0
}

// ask sends a take and waits for its answer. It returns errUndecided if the take
// was not read.
func (s *stream) ask(ctx context.Context, k *Take) error {
	number, answers, err := s.send(k)
	if err != nil {
		return err
	}
	select {
	case <-k.done:
		return k.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-k.timer.C:
		err = errTimeout
	}
	if !s.giveUp(number) {
		<-k.done // its answer came at the same time
		return k.err
	}
	if errors.Is(err, errTimeout) {
		s.suspect(answers)
	}
	return err
}

// send puts a take into the queue. It returns how many answers had come by then.
func (s *stream) send(k *Take) (number, answers uint64, err error) {
	const crowd = 1 << 16 // takes in the queue, to bound memory
	s.mu.Lock()
	if s.retired || s.ended {
		s.mu.Unlock()
		return 0, 0, errUndecided
	}
	if len(s.queue) >= crowd {
		s.mu.Unlock()
		return 0, 0, errCrowded
	}
	s.last++
	number, answers = s.last, s.answers
	s.takes[number] = k
	s.queue = append(s.queue, number)
	if len(s.queue) > 1 {
		s.mu.Unlock()
		return number, answers, nil // the writer knows
	}
	if !s.isIdle() {
		s.mu.Unlock()
		s.rouse()
		return number, answers, nil
	}
	data := s.gather()
	s.sending = true
	s.mu.Unlock()
	_ = s.rpc.SendMsg(&message{data}) // the reader learns why
	s.mu.Lock()
	s.sending = false
	isMore := len(s.queue) > 0 || s.retired
	s.mu.Unlock()
	if isMore {
		s.rouse()
	}
	return number, answers, nil
}

// isIdle reports whether the last take is alone and all before it are answered. Its own
// goroutine can then send it, which saves a switch to the writer: the RPC has room, so
// sending does not block.
func (s *stream) isIdle() bool {
	return s.rpc != nil && !s.sending && len(s.takes) == 1 && s.answers+s.skipped == s.last-1
}

func (s *stream) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// giveUp removes a take. It returns false if the take was answered.
func (s *stream) giveUp(number uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.takes[number] == nil {
		return false
	}
	delete(s.takes, number)
	if len(s.queue) > 2*len(s.takes)+maxTakes {
		s.compact()
	}
	if s.retired && len(s.takes) == 0 {
		s.cancel() // a stream that is suspected may never end by itself
	}
	return true
}

// compact removes takes from the queue that gave up before they were sent.
func (s *stream) compact() {
	kept := s.queue[:0]
	for _, number := range s.queue {
		if s.takes[number] != nil {
			kept = append(kept, number)
		} else {
			s.skipped++
		}
	}
	s.queue = kept
}

// suspect retires a stream on which nothing came while a take waited for its whole
// timeout. If nothing ever came, streams may not get through at all. If other streams do,
// it is this daemon that is silent.
func (s *stream) suspect(answers uint64) {
	s.mu.Lock()
	isSilent, ever := s.rpc != nil && s.answers == answers, s.answers > 0
	s.mu.Unlock()
	if !isSilent {
		return
	}
	s.pool.suspect(s.place())
	s.pool.drop(s)
	s.retire()
	if !ever && !s.pool.hears() {
		s.pool.refuse("no answer comes on a stream")
	}
}

// retire ends the stream once all its takes are answered.
func (s *stream) retire() {
	s.mu.Lock()
	s.retired = true
	if len(s.takes) == 0 {
		s.cancel()
	}
	s.mu.Unlock()
	s.rouse()
}

// read hands out answers until the stream ends, and returns why it did.
func (s *stream) read(rpc grpc.ClientStream) error {
	var m message
	for {
		if err := rpc.RecvMsg(&m); err != nil {
			return err
		}
		if err := s.handOut(m.data); err != nil {
			return err
		}
	}
}

// handOut reads a TakeStreamResponse.
func (s *stream) handOut(data []byte) error {
	f := wire.Fields[[]byte]{Rest: data}
	for f.Next() {
		if !f.Is(responseResults, wire.Bytes) {
			continue
		}
		number, result, err := readNumbered(f.Bytes)
		if err != nil {
			return Unreadable(err)
		}
		if k := s.answered(number); k != nil {
			k.readResult(result)
			k.done <- struct{}{}
		}
	}
	return Unreadable(f.Err)
}

// answered removes the take with this number, and returns it if it still waits.
func (s *stream) answered(number uint64) *Take {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers == 0 {
		s.pool.isPassed.Store(true)
	}
	s.answers++
	k := s.takes[number]
	delete(s.takes, number)
	return k
}

// drained is the trailer by which a daemon that stops says that it has not read
// the takes that it has not answered.
const drained = "ratelimit-drained"

// isUndecided reports whether the end of an RPC says that the takes without an answer
// were not decided. It notes when streams are refused.
func (s *stream) isUndecided(rpc grpc.ClientStream, err error) bool {
	s.mu.Lock()
	ever := s.answers > 0
	s.mu.Unlock()
	switch code := status.Code(err); {
	case code == codes.Unavailable:
		return len(rpc.Trailer().Get(drained)) > 0
	case ever || s.ctx.Err() != nil:
		return false
	case code == codes.Unimplemented:
		s.pool.refuse(err.Error())
		return true
	case code != codes.OK:
		s.pool.refuse(err.Error())
	}
	return false
}

// close ends the takes that are left. Those that were not sent were not decided. About
// the others this is known only if the daemon said so.
func (s *stream) close(err error, isUndecided bool) {
	// The code that ended the stream says nothing about its takes.
	err = status.Errorf(codes.Unavailable, "the stream ended: %v", err)
	s.pool.drop(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.rpc != nil {
		for _, number := range s.queue {
			s.finish(number, errUndecided)
		}
	}
	if isUndecided {
		err = errUndecided
	}
	for number := range s.takes {
		s.finish(number, err)
	}
	s.queue = nil
}

func (s *stream) finish(number uint64, err error) {
	if k := s.takes[number]; k != nil {
		delete(s.takes, number)
		k.err = err
		k.done <- struct{}{}
	}
}
