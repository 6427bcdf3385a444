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
// among a lane's calls, who takes it out of them does.
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

// lane is a stream to one daemon. Requests wait in its queue while the writer
// is busy with those before them.
type lane struct {
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
	stream  grpc.ClientStream
	at      connection // known once stream is there
	sending bool       // somebody has a message in hand for the stream
	retired bool       // takes no more requests
	ended   bool       // has no more calls
}

// connection tells the connections of a client apart.
type connection struct{ daemon, local string }

func (c *Client) newLane() *lane {
	l := &lane{client: c, wake: make(chan struct{}, 1), calls: make(map[uint64]*call)}
	l.ctx, l.cancel = context.WithCancel(c.ctx)
	return l
}

var streamDesc = grpc.StreamDesc{ClientStreams: true, ServerStreams: true}

// open opens the stream. Its error is that of a connection: nothing was sent.
func (l *lane) open() (grpc.ClientStream, error) {
	stream, err := l.client.conn.NewStream(l.ctx, &streamDesc, ratelimitv1.RateLimitService_TakeStream_FullMethodName, grpc.ForceCodecV2(codec{}))
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stream = stream
	// What is asked after here commits gRPC to this attempt: it never sends
	// again by itself what may have been read.
	if p, ok := peer.FromContext(stream.Context()); ok {
		l.at.daemon = p.Addr.String()
		if p.LocalAddr != nil {
			l.at.local = p.LocalAddr.String()
		}
	}
	return stream, nil
}

// run serves the lane until its end, on a stream that is open or will be.
func (l *lane) run(stream grpc.ClientStream) {
	defer l.cancel()
	if stream == nil {
		var err error
		if stream, err = l.open(); err != nil {
			l.close(err, false)
			return
		}
	}
	var writer sync.WaitGroup
	writer.Go(func() { l.write(stream) })
	err := l.read(stream)
	l.client.drop(l)
	l.close(err, l.isUndecided(stream, err))
	l.cancel()
	writer.Wait()
}

// write sends what is in the queue. While one message is made and handed over
// others gather: they are the next one.
func (l *lane) write(stream grpc.ClientStream) {
	for {
		select {
		case <-l.wake:
		case <-l.ctx.Done():
			return
		}
		// Who is about to ask comes along: a message costs more than a request.
		runtime.Gosched()
		for data := l.next(false); data != nil; data = l.next(true) {
			if stream.SendMsg(&message{data}) != nil {
				return // the reader learns why
			}
		}
		if l.isFinished() {
			_ = stream.CloseSend() // never fails
			return
		}
	}
}

// next returns the next message for the stream, or nil if nothing waits or
// somebody else has one in hand, who will rouse the writer.
func (l *lane) next(hadOne bool) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sending && !hadOne {
		return nil
	}
	data := l.gather()
	l.sending = data != nil
	return data
}

// gather makes a message of what is in the queue.
func (l *lane) gather() []byte {
	var data []byte
	i, takes := 0, 0
	for ; i < len(l.queue) && takes < maxTakes; i++ {
		k := l.calls[l.queue[i]]
		if k == nil {
			l.skipped++
			continue
		}
		if data == nil {
			const overhead = 16
			data = make([]byte, 0, min(maxBytes, (len(l.queue)-i)*(len(k.take)+overhead)))
		}
		if takes > 0 && len(data)+len(k.take) > maxBytes {
			break
		}
		data = appendNumbered(data, l.queue[i], k.take)
		takes++
	}
	l.queue = l.queue[:copy(l.queue, l.queue[i:])]
	return data
}

// isFinished reports whether nothing will be sent any more.
func (l *lane) isFinished() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.retired && !l.sending && len(l.queue) == 0
}

// ask sends a call and waits for its answer. It returns errUndecided if the
// call was not read.
func (l *lane) ask(ctx context.Context, k *call) error {
	number, answers, err := l.send(k)
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
	if !l.giveUp(number) {
		<-k.done // its answer came at the same time
		return k.err
	}
	if errors.Is(err, errTimeout) {
		l.suspect(answers)
	}
	return err
}

// send puts a call into the queue. It returns how many answers had come.
func (l *lane) send(k *call) (number, answers uint64, err error) {
	const crowd = 1 << 16 // requests in the queue, to bound memory
	l.mu.Lock()
	if l.retired || l.ended {
		l.mu.Unlock()
		return 0, 0, errUndecided
	}
	if len(l.queue) >= crowd {
		l.mu.Unlock()
		return 0, 0, errCrowded
	}
	l.last++
	number, answers = l.last, l.answers
	l.calls[number] = k
	l.queue = append(l.queue, number)
	if len(l.queue) > 1 {
		l.mu.Unlock()
		return number, answers, nil // the writer knows
	}
	if !l.isIdle() {
		l.mu.Unlock()
		l.rouse()
		return number, answers, nil
	}
	data := l.gather()
	l.sending = true
	l.mu.Unlock()
	_ = l.stream.SendMsg(&message{data}) // the reader learns why
	l.mu.Lock()
	l.sending = false
	isMore := len(l.queue) > 0 || l.retired
	l.mu.Unlock()
	if isMore {
		l.rouse()
	}
	return number, answers, nil
}

// isIdle reports whether the call that came last is alone and all before it are
// answered. Then it can send itself, which spares a change of goroutines: the
// stream has room, so that this does not block.
func (l *lane) isIdle() bool {
	return l.stream != nil && !l.sending && len(l.calls) == 1 && l.answers+l.skipped == l.last-1
}

func (l *lane) rouse() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// giveUp takes a call back, unless it was answered.
func (l *lane) giveUp(number uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls[number] == nil {
		return false
	}
	delete(l.calls, number)
	if len(l.queue) > 2*len(l.calls)+maxTakes {
		l.compact()
	}
	if l.retired && len(l.calls) == 0 {
		l.cancel() // a lane that is suspected may never end by itself
	}
	return true
}

// compact forgets who gave up before he was sent.
func (l *lane) compact() {
	kept := l.queue[:0]
	for _, number := range l.queue {
		if l.calls[number] != nil {
			kept = append(kept, number)
		} else {
			l.skipped++
		}
	}
	l.queue = kept
}

// suspect retires a lane on which nothing came while a request waited for its
// whole time. If nothing ever came, streams may not pass at all, unless others
// do: then it is a daemon that is silent.
func (l *lane) suspect(answers uint64) {
	l.mu.Lock()
	isSilent, ever := l.stream != nil && l.answers == answers, l.answers > 0
	l.mu.Unlock()
	if !isSilent {
		return
	}
	l.client.suspect(l.place())
	l.client.drop(l)
	l.retire()
	if !ever && !l.client.hears() {
		l.client.refuse("no answer comes on a stream")
	}
}

// retire has the lane end when all that it took is answered.
func (l *lane) retire() {
	l.mu.Lock()
	l.retired = true
	if len(l.calls) == 0 {
		l.cancel()
	}
	l.mu.Unlock()
	l.rouse()
}

// read hands out answers until the stream ends, and returns why it did.
func (l *lane) read(stream grpc.ClientStream) error {
	var m message
	for {
		if err := stream.RecvMsg(&m); err != nil {
			return err
		}
		if err := l.handOut(m.data); err != nil {
			return err
		}
	}
}

// handOut reads a TakeStreamResponse.
func (l *lane) handOut(data []byte) error {
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
		if k := l.answered(number); k != nil {
			k.readResult(result)
			k.done <- struct{}{}
		}
	}
	return unreadable(f.Err)
}

// answered takes out the call of that number, if it still waits.
func (l *lane) answered(number uint64) *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers++
	k := l.calls[number]
	delete(l.calls, number)
	return k
}

// drained is the trailer by which a daemon that stops says that what it has not
// answered was not read.
const drained = "ratelimit-drained"

// isUndecided reports whether the end of a stream says that what has no answer
// was not decided. It notes where streams are refused.
func (l *lane) isUndecided(stream grpc.ClientStream, err error) bool {
	l.mu.Lock()
	ever := l.answers > 0
	l.mu.Unlock()
	switch code := status.Code(err); {
	case code == codes.Unavailable:
		return len(stream.Trailer().Get(drained)) > 0
	case ever || l.ctx.Err() != nil:
		return false
	case code == codes.Unimplemented:
		l.client.refuse(err.Error())
		return true
	case code != codes.OK:
		l.client.refuse(err.Error())
	}
	return false
}

// close ends the calls that are left. Those that were not sent are not decided;
// of the others that is not known unless the daemon said so.
func (l *lane) close(err error, isUndecided bool) {
	// Whatever is wrong with the stream is not with its requests.
	err = status.Errorf(codes.Unavailable, "the stream ended: %v", err)
	l.client.drop(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.stream != nil {
		for _, number := range l.queue {
			l.finish(number, errUndecided)
		}
	}
	if isUndecided {
		err = errUndecided
	}
	for number := range l.calls {
		l.finish(number, err)
	}
	l.queue = nil
}

func (l *lane) finish(number uint64, err error) {
	if k := l.calls[number]; k != nil {
		delete(l.calls, number)
		k.err = err
		k.done <- struct{}{}
	}
}
