package client

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/wire"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// call is a request on its way. The goroutine that asks owns it; while it is
// among a stream's calls, who takes it out of them does.
type call struct {
	take []byte // the TakeRequest

	// What came of it.
	result  *Result // nil if only allowed is wanted
	allowed bool
	err     error
	done    chan struct{} // takes one value when the above is there

	begun time.Time
	timer *time.Timer

	// Allow's request.
	request     Request
	descriptors [1]Descriptor
}

func newCall() *call {
	k := &call{done: make(chan struct{}, 1), timer: time.NewTimer(0)}
	k.timer.Stop()
	return k
}

func (k *call) begin(timeout time.Duration) {
	k.begun = time.Now()
	k.timer.Reset(timeout)
}

func (c *Client) release(k *call) {
	clear(k.descriptors[0].Entries)
	k.request, k.err, k.allowed = Request{}, nil, false
	c.calls.Put(k)
}

var (
	// errUndecided is the end of a request that no daemon read.
	errUndecided = errors.New("client: the daemons stop")
	errTimeout   = status.Error(codes.DeadlineExceeded, "client: no answer in time")
	errCrowded   = status.Error(codes.ResourceExhausted, "client: too many requests wait for the daemon")
)

// What one message holds at most: well within what the daemon reads at once
// unless its settings are very narrow.
const (
	maxTakes = 128
	maxBytes = 16 << 10
)

// stream brings requests to one daemon. They wait in its queue while the writer
// is busy with those before them.
type stream struct {
	client *Client
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // holds a value if the writer has something to do

	mu      sync.Mutex
	calls   map[uint64]*call // those that have no answer, by their numbers
	queue   []uint64         // those that are not sent; some may have given up
	last    uint64           // number given
	answers uint64           // how many came
	skipped uint64           // how many gave up before they were sent
	rpc     grpc.ClientStream
	at      connection // known once rpc is there
	sending bool       // somebody has a message in hand for the stream
	retired bool       // takes no more requests
	ended   bool       // has no more calls
}

// connection tells the connections of a client apart.
type connection struct{ daemon, local string }

func (c *Client) newStream() *stream {
	s := &stream{client: c, wake: make(chan struct{}, 1), calls: make(map[uint64]*call)}
	s.ctx, s.cancel = context.WithCancel(c.ctx)
	return s
}

var streamDesc = grpc.StreamDesc{ClientStreams: true, ServerStreams: true}

// open opens the stream. Its error is that of a connection: nothing was sent.
func (s *stream) open() (grpc.ClientStream, error) {
	rpc, err := s.client.conn.NewStream(s.ctx, &streamDesc, ratelimitv1.RateLimitService_TakeStream_FullMethodName, grpc.ForceCodecV2(codec{}))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rpc = rpc
	// What is asked after here commits gRPC to this attempt: it never sends
	// again by itself what may have been read.
	if p, ok := peer.FromContext(rpc.Context()); ok {
		s.at.daemon = p.Addr.String()
		if p.LocalAddr != nil {
			s.at.local = p.LocalAddr.String()
		}
	}
	return rpc, nil
}

// run serves the stream until its end, on an RPC that is open or will be.
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
	s.client.drop(s)
	s.close(err, s.isUndecided(rpc, err))
	s.cancel()
	writer.Wait()
}

// write sends what is in the queue. While one message is made and handed over
// others gather: they are the next one.
func (s *stream) write(rpc grpc.ClientStream) {
	for {
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
		// Who is about to ask comes along: a message costs more than a request.
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

// next returns the next message for the stream, or nil if nothing waits or
// somebody else has one in hand, who will rouse the writer.
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

// gather makes a message of what is in the queue.
func (s *stream) gather() []byte {
	var data []byte
	i, takes := 0, 0
	for ; i < len(s.queue) && takes < maxTakes; i++ {
		k := s.calls[s.queue[i]]
		if k == nil {
			s.skipped++
			continue
		}
		if data == nil {
			const overhead = 16
			data = make([]byte, 0, min(maxBytes, (len(s.queue)-i)*(len(k.take)+overhead)))
		}
		if takes > 0 && len(data)+len(k.take) > maxBytes {
			break
		}
		data = appendNumbered(data, s.queue[i], k.take)
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

// ask sends a call and waits for its answer. It returns errUndecided if the
// call was not read.
func (s *stream) ask(ctx context.Context, k *call) error {
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

// send puts a call into the queue. It returns how many answers had come.
func (s *stream) send(k *call) (number, answers uint64, err error) {
	const crowd = 1 << 16 // requests in the queue, to bound memory
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
	s.calls[number] = k
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

// isIdle reports whether the call that came last is alone and all before it are
// answered. Then it can send itself, which spares a change of goroutines: the
// stream has room, so that this does not block.
func (s *stream) isIdle() bool {
	return s.rpc != nil && !s.sending && len(s.calls) == 1 && s.answers+s.skipped == s.last-1
}

func (s *stream) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// giveUp takes a call back, unless it was answered.
func (s *stream) giveUp(number uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[number] == nil {
		return false
	}
	delete(s.calls, number)
	if len(s.queue) > 2*len(s.calls)+maxTakes {
		s.compact()
	}
	if s.retired && len(s.calls) == 0 {
		s.cancel() // a stream that is suspected may never end by itself
	}
	return true
}

// compact forgets who gave up before he was sent.
func (s *stream) compact() {
	kept := s.queue[:0]
	for _, number := range s.queue {
		if s.calls[number] != nil {
			kept = append(kept, number)
		} else {
			s.skipped++
		}
	}
	s.queue = kept
}

// suspect retires a stream on which nothing came while a request waited for its
// whole time. If nothing ever came, streams may not pass at all, unless others
// do: then it is a daemon that is silent.
func (s *stream) suspect(answers uint64) {
	s.mu.Lock()
	isSilent, ever := s.rpc != nil && s.answers == answers, s.answers > 0
	s.mu.Unlock()
	if !isSilent {
		return
	}
	s.client.suspect(s.place())
	s.client.drop(s)
	s.retire()
	if !ever && !s.client.hears() {
		s.client.refuse("no answer comes on a stream")
	}
}

// retire has the stream end when all that it took is answered.
func (s *stream) retire() {
	s.mu.Lock()
	s.retired = true
	if len(s.calls) == 0 {
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
		if !f.Is(1, wire.Bytes) {
			continue
		}
		number, result := uint64(0), []byte(nil)
		n := wire.Fields[[]byte]{Rest: f.Bytes}
		for n.Next() {
			switch {
			case n.Is(1, wire.Varint):
				number = n.Varint
			case n.Is(2, wire.Bytes):
				result = n.Bytes
			}
		}
		if n.Err != nil {
			return unreadable(n.Err)
		}
		if k := s.answered(number); k != nil {
			k.readResult(result)
			k.done <- struct{}{}
		}
	}
	return unreadable(f.Err)
}

// answered takes out the call of that number, if it still waits.
func (s *stream) answered(number uint64) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers++
	k := s.calls[number]
	delete(s.calls, number)
	return k
}

// drained is the trailer by which a daemon that stops says that what it has not
// answered was not read.
const drained = "ratelimit-drained"

// isUndecided reports whether the end of a stream says that what has no answer
// was not decided. It notes where streams are refused.
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
		s.client.refuse(err.Error())
		return true
	case code != codes.OK:
		s.client.refuse(err.Error())
	}
	return false
}

// close ends the calls that are left. Those that were not sent are not decided;
// of the others that is not known unless the daemon said so.
func (s *stream) close(err error, isUndecided bool) {
	// Whatever is wrong with the stream is not with its requests.
	err = status.Errorf(codes.Unavailable, "the stream ended: %v", err)
	s.client.drop(s)
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
	for number := range s.calls {
		s.finish(number, err)
	}
	s.queue = nil
}

func (s *stream) finish(number uint64, err error) {
	if k := s.calls[number]; k != nil {
		delete(s.calls, number)
		k.err = err
		k.done <- struct{}{}
	}
}
