package takeapi

import (
	"container/heap"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/proto/wire"
)

// Slots of requests in flight can be bound to a stream. The stream then renews them, and
// frees them when its caller ends it. A stream that the daemon ends leaves them to lapse,
// so that its caller has time to renew them on another one; so does one whose connection
// has gone, since its caller may run on and not know.
//
// A renewal takes once more, for the holders alone, and is authorized, counted and
// recorded like every take. What it finds:
//
//   - the slot: it is held from now on;
//   - no slot, since the hold had ended: the stream was held up, or the store did not
//     answer for so long. If there is room the slot is had again, else it is lost;
//   - no slot, although the hold had not ended: somebody released it, or reset the limit.
//     It is lost, and what the renewal took is given back;
//   - no answer of the store, or one that a fallback gave: nothing is known, so nothing is
//     lost. The next renewal comes sooner;
//   - a refusal, since the caller may not ask any more: it is lost.
//
// What is freed is given back, by the moment of the last renewal: a slot that somebody
// else has renewed since stays, such as another stream to which its holder has moved.

const (
	// maxBound is how many takes can be bound to a stream at a time.
	maxBound = 8192
	// bindingCost is what a bound take holds, in bytes, beside what its message does.
	bindingCost = 1 << 10
	// renewers is how many of a stream's slots are renewed or freed at a time if the
	// store waits.
	renewers = 16
	// renewerCost is what each of them holds, in bytes.
	renewerCost = 8 << 10

	// A hold is renewed after about a third, and no sooner than after a quarter: renewals
	// that come soon after each other are a sign of holders that are none. Those that are
	// due within a part of the hold are renewed together.
	renewedPart  = 3
	togetherPart = 24
	// retriedPart is the part of a hold after which a renewal without an answer is
	// tried again. If it did renew, that is not soon either.
	retriedPart = 5
	// minPause is the least time between renewals, whatever the hold.
	minPause = time.Millisecond
)

// errManyBound refuses a take that would bind too much.
var errManyBound = status.Errorf(codes.ResourceExhausted, "bind: this stream has no room for more slots: it has %d takes, or all the memory that they may use (setting request_memory)", maxBound)

// bound are the slots that are bound to a stream.
type bound struct {
	stream *takeStream
	// wake tells the renewer that something is due earlier than it thinks.
	wake    chan struct{}
	running sync.WaitGroup
	end     context.CancelFunc // of the renewer; nil if none has been started

	mu    sync.Mutex
	byKey map[boundKey]*binding
	due   byDue
	held  int64 // bytes that are charged; 0 before the first binding
	// lost are numbers that the caller is not yet told; isTelling is set while somebody
	// does.
	lost      []uint64
	isTelling bool
}

// boundKey identifies the descriptors of a take.
type boundKey [sha256.Size]byte

// binding is a take whose slots are bound, or will be if it gets some.
type binding struct {
	key boundKey
	// number is that of the last take.
	number uint64
	cost   int64 // bytes
	// pending counts takes that are not decided, and renewals that are under way.
	pending int
	// isGone is set once it is released or unbound; isReleased if what takes under way
	// still get is to be freed.
	isGone, isReleased bool

	// message is a TakeRequest for the descriptors with slots alone; empty as long as
	// there are none.
	message string
	slots   []decide.Slot
	// renewAt is when it is due, on the decider's clock, and index its place in the heap,
	// or -1.
	renewAt time.Duration
	index   int
}

// hold is the shortest of its holds.
func (b *binding) hold() time.Duration {
	hold := time.Duration(0)
	for i := range b.slots {
		if h := b.slots[i].Hold; h > 0 && (hold == 0 || h < hold) {
			hold = h
		}
	}
	return hold
}

func newBound(s *takeStream) *bound {
	return &bound{stream: s, wake: make(chan struct{}, 1), byKey: make(map[boundKey]*binding)}
}

// keyOf returns the key of the descriptors that a call was read from, whatever their costs.
func keyOf(c takeCall) boundKey {
	var text []byte
	for i := range c.Descriptors {
		subject := bucket.AppendSubject(nil, c.Domain, c.Descriptors[i].Entries)
		text = append(binary.AppendUvarint(text, uint64(len(subject))), subject...)
	}
	return sha256.Sum256(text)
}

// bind makes room for the slots of an item that is about to be decided.
func (b *bound) bind(it *item, size int) {
	key := keyOf(it.call)
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.byKey[key]
	if of == nil {
		of = &binding{key: key, cost: bindingCost + 4*int64(size), index: -1}
		if len(b.byKey) >= maxBound || !b.charge(of.cost) {
			it.err = errManyBound
			return
		}
		b.byKey[key] = of
	}
	of.number = it.number
	of.pending++
	it.binding = of
}

// charge charges bytes, and with the first ones what renewing takes, if there is room for
// them. The caller has the lock.
func (b *bound) charge(bytes int64) bool {
	if b.held == 0 {
		bytes += renewerCost
		if b.stream.StoreWaits {
			bytes += renewers * renewerCost
		}
	}
	if !b.stream.account.TryStream(bytes) {
		return false
	}
	b.held += bytes
	return true
}

// unbind ends the binding of an item that releases, or only unbinds. It reports whether
// there was one.
func (b *bound) unbind(it *item, isReleased bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.byKey[keyOf(it.call)]
	if of == nil {
		return false
	}
	of.isReleased = isReleased
	b.remove(of)
	return true
}

// remove ends a binding. The caller has the lock.
func (b *bound) remove(of *binding) {
	if of.isGone {
		return
	}
	of.isGone = true
	delete(b.byKey, of.key)
	if of.index >= 0 {
		heap.Remove(&b.due, of.index)
	}
	b.held -= of.cost
	b.stream.account.ReleaseStream(of.cost)
}

// decided binds the slots that a decided item has.
func (b *bound) decided(it *item) {
	of, c := it.binding, it.call
	it.binding = nil
	isHeld := it.err == nil && !c.Denied
	var slots []decide.Slot
	message := ""
	if isHeld {
		message, slots = holdersOf(c)
	}
	b.mu.Lock()
	of.pending--
	switch {
	case of.isGone:
		b.mu.Unlock()
		if of.isReleased && len(slots) > 0 { // the release has overtaken it
			b.free(message, slots)
		}
		return
	case len(slots) > 0:
		of.message, of.slots = message, slots
		b.schedule(of, renewedPart)
	case of.pending == 0 && of.message == "":
		b.remove(of)
	}
	b.mu.Unlock()
}

// holdersOf returns a TakeRequest for the descriptors for which a call has slots, and
// these.
func holdersOf(c takeCall) (message string, slots []decide.Slot) {
	var take []byte
	for i := range c.Descriptors {
		if !c.HasSlots(i) {
			continue
		}
		if take == nil {
			take = wire.AppendText(nil, 1, c.Domain)
		}
		var start int
		take, start = wire.BeginMessage(take, 2)
		for _, e := range c.Descriptors[i].Entries {
			var entry int
			take, entry = wire.BeginMessage(take, 1)
			take = wire.AppendText(take, 1, e.Key)
			take = wire.AppendText(take, 2, e.Value)
			take = wire.EndMessage(take, entry)
		}
		take = wire.EndMessage(take, start)
		slots = c.AppendSlots(slots, i)
	}
	return string(take), slots
}

// schedule has a binding renewed after this part of its hold. The caller has the lock.
func (b *bound) schedule(of *binding, part time.Duration) {
	pause := max(of.hold()/part, minPause)
	of.renewAt = b.stream.Decider.Clock() + pause + time.Duration((rand.Float64()-0.5)*float64(pause)/4)
	if of.index < 0 {
		heap.Push(&b.due, of)
	} else {
		heap.Fix(&b.due, of.index)
	}
	if b.end == nil {
		ctx, end := context.WithCancel(b.stream.ctx)
		b.end = end
		b.running.Go(func() { b.renewAll(ctx) })
	}
	if of.index == 0 {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
}

// renewAll renews what is due until ctx ends.
func (b *bound) renewAll(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-b.wake:
		}
		b.each(b.takeDue(), b.renew)
		timer.Reset(b.pause())
	}
}

// takeDue takes the bindings out of the heap that are due, or nearly.
func (b *bound) takeDue() (due []*binding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.stream.Decider.Clock()
	for len(b.due) > 0 {
		of := b.due[0]
		if of.renewAt > now+of.hold()/togetherPart {
			break
		}
		heap.Pop(&b.due)
		of.pending++
		due = append(due, of)
	}
	return due
}

// pause is how long it is until something is due.
func (b *bound) pause() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.due) == 0 {
		return time.Hour
	}
	return max(b.due[0].renewAt-b.stream.Decider.Clock(), minPause)
}

// each calls do for each binding, for several at a time if the store waits.
func (b *bound) each(all []*binding, do func(*binding)) {
	if !b.stream.StoreWaits {
		for _, of := range all {
			do(of)
		}
		return
	}
	queue := make(chan *binding)
	var workers sync.WaitGroup
	for range min(len(all), renewers) {
		workers.Go(func() {
			for of := range queue {
				do(of)
			}
		})
	}
	for _, of := range all {
		queue <- of
	}
	close(queue)
	workers.Wait()
}

// renew renews a binding that was due.
func (b *bound) renew(of *binding) {
	b.mu.Lock()
	message, before := of.message, of.slots
	b.mu.Unlock()
	c, err := b.ask(message, nil)
	defer c.Release()
	var after []decide.Slot
	isKnown, isLost := err == nil && !c.IsDegraded(), false
	if err == nil && !c.Denied {
		for i := range c.Descriptors {
			after = c.AppendSlots(after, i)
		}
	}
	switch status.Code(err) {
	case codes.OK:
		isLost = isKnown && (c.Denied || decide.WereFreed(before, after))
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument:
		isLost = true
	}
	back, isTold := b.renewed(of, after, isKnown, isLost)
	if back != nil {
		b.free(message, back)
	}
	if isTold {
		b.tell(of.number)
	}
}

// renewed notes the result of a renewal. It returns what is to be given back, and whether
// the caller is to be told of a loss.
func (b *bound) renewed(of *binding, after []decide.Slot, isKnown, isLost bool) (back []decide.Slot, isTold bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	of.pending--
	switch isHeld := slices.ContainsFunc(after, func(s decide.Slot) bool { return s.Hold > 0 }); {
	case of.isGone:
		if of.isReleased && isHeld {
			back = after
		}
	case isLost: // no take has its number any more
		b.remove(of)
		if isTold = true; isHeld {
			back = decide.NewOnly(after)
		}
	case !isKnown:
		b.schedule(of, retriedPart)
	case !isHeld: // the rule counts no requests in flight any more
		b.remove(of)
	default:
		if isLater(after, of.slots) {
			of.slots = after
		}
		b.schedule(of, renewedPart)
	}
	return back, isTold
}

// isLater reports whether the slots were taken or renewed later than others, by two calls
// that may have been under way at the same time.
func isLater(slots, others []decide.Slot) bool {
	latest := func(of []decide.Slot) (at int64) {
		for i := range of {
			at = max(at, of[i].Taken.At)
		}
		return at
	}
	return latest(slots) >= latest(others)
}

// free frees slots that nobody has renewed since. What the store does not free lapses.
func (b *bound) free(message string, slots []decide.Slot) {
	back := new(endpoint.GiveBack)
	for i := range slots {
		back.TakenAt = append(back.TakenAt, slots[i].Taken.At)
		back.TakenBy = append(back.TakenBy, slots[i].Taken.By)
	}
	if !slices.ContainsFunc(back.TakenAt, func(at int64) bool { return at != 0 }) {
		return
	}
	c, _ := b.ask(message, back)
	c.Release()
}

// ask takes again, or gives back, by the message of a binding. It does so to the end, so
// that it is known what became of the slots: the caller may have gone.
func (b *bound) ask(message string, back *endpoint.GiveBack) (c takeCall, err error) {
	s := b.stream
	it := new(item)
	s.readItem(it, message, false, s.Decider.Clock())
	it.call.IsOwnSlot = true
	s.answerBack(context.WithoutCancel(s.ctx), it, back)
	if it.call.Call == nil { // it panicked
		it.call = takeCall{s.Decider.Call(s.Decider.Clock())}
	}
	return it.call, it.err
}

// tell tells the caller that the slots of a take are lost.
func (b *bound) tell(number uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost = append(b.lost, number)
	if b.isTelling {
		return
	}
	b.isTelling = true
	// Sending waits for a caller that does not read; renewals must not.
	b.running.Go(func() {
		for {
			b.mu.Lock()
			lost := b.lost
			b.lost = nil
			b.isTelling = len(lost) > 0
			b.mu.Unlock()
			if len(lost) == 0 || b.stream.send(appendLost(nil, lost)) != nil {
				return
			}
		}
	})
}

// appendLost appends the field lost of a TakeStreamResponse.
func appendLost(dst []byte, numbers []uint64) []byte {
	dst, start := wire.BeginMessage(dst, 2)
	for _, n := range numbers {
		dst = protowire.AppendVarint(dst, n)
	}
	return wire.EndMessage(dst, start)
}

// close ends the renewals, and frees what is bound if the caller has ended the stream.
// No take is under way any more.
func (b *bound) close(isCallers bool) {
	if b.end != nil {
		b.end()
	}
	b.running.Wait()
	var all []*binding
	for _, of := range b.byKey {
		if of.message != "" {
			all = append(all, of)
		}
	}
	if isCallers {
		b.each(all, func(of *binding) { b.free(of.message, of.slots) })
	}
	b.stream.account.ReleaseStream(b.held)
}

// byDue is a heap of bindings, the one that is due first on top.
type byDue []*binding

func (h byDue) Len() int           { return len(h) }
func (h byDue) Less(i, j int) bool { return h[i].renewAt < h[j].renewAt }
func (h byDue) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *byDue) Push(x any) {
	of := x.(*binding)
	of.index = len(*h)
	*h = append(*h, of)
}

// Pop implements heap.Interface.
func (h *byDue) Pop() any {
	last := len(*h) - 1
	of := (*h)[last]
	(*h)[last] = nil
	*h, of.index = (*h)[:last], -1
	return of
}
