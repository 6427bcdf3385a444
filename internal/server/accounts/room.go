package accounts

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// reserve charges bytes once there is room for them. Its error is for the
// caller, who has waited for that long enough.
func (a *Account) reserve(ctx context.Context, bytes int64) error {
	if a == nil {
		return nil
	}
	if a.closed.Load() {
		return errGone
	}
	if err := a.await(ctx, bytes); err != nil {
		return err
	}
	a.Add(bytes)
	return nil
}

// errGone is for nobody to read.
var errGone = status.Error(codes.Canceled, "the caller has gone")

// await waits until there is room for bytes.
func (a *Account) await(ctx context.Context, bytes int64) error {
	m := a.memory
	if m.held.Load()+bytes <= m.budget || a.mayExceed(bytes) {
		return nil
	}
	return m.waitFor(ctx, bytes)
}

// HoldStream charges bytes of a TakeStream once there is room for them, beside
// those that the streams of the connection have in all. It waits as long as the
// context: the caller is held up.
func (a *Account) HoldStream(ctx context.Context, bytes int64) error {
	if a == nil {
		return nil
	}
	const look = 2 * time.Millisecond
	for !a.TryStream(bytes) {
		select {
		case <-time.After(look):
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	return nil
}

// TryStream charges bytes of a TakeStream if there is room for them.
func (a *Account) TryStream(bytes int64) bool {
	if a == nil {
		return true
	}
	if a.memory.held.Load()+bytes > a.memory.budget {
		a.memory.press()
		return false
	}
	isRoom := false
	a.update(func() {
		if isRoom = a.streams+bytes <= StreamsMost; isRoom {
			a.streams += bytes
			a.shift(bytes)
		}
	})
	return isRoom
}

// ReleaseStream gives back bytes of a TakeStream, for what has been answered.
func (a *Account) ReleaseStream(bytes int64) {
	if a == nil {
		return
	}
	a.update(func() {
		a.streams -= bytes
		a.finished++
		a.used = true
		a.shift(-bytes)
	})
}

// mayExceed reports whether the connection, which finishes what it asks, need
// not wait while there are others to blame. A quarter of the budget more is for
// those, and as much again for what they ask that is small.
func (a *Account) mayExceed(bytes int64) bool {
	m := a.memory
	more := m.budget / 4
	if bytes <= callCost {
		more = m.budget
	}
	if m.held.Load()+bytes > m.budget+more {
		return false
	}
	m.press()
	return a.hasEarned(bytes)
}

// errMemory is the answer to a request for which there was no room.
var errMemory = status.Error(codes.ResourceExhausted, "the requests that are being read and answered take all the memory that they may (setting request_memory)")

func (m *Memory) waitFor(ctx context.Context, bytes int64) error {
	if m.waiting.Add(1) > waitersMost {
		m.waiting.Add(-1)
		m.press()
		return errMemory
	}
	defer m.waiting.Add(-1)
	const look = 5 * time.Millisecond
	timer := time.NewTicker(look)
	defer timer.Stop()
	for end := time.Now().Add(waitsFor); time.Now().Before(end); {
		m.press()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
		if m.held.Load()+bytes <= m.budget {
			return nil
		}
	}
	return errMemory
}

// holdUp waits for a moment where there is no room, so that no more is read from
// the connection meanwhile, and longer where it may not go on.
func (a *Account) holdUp() {
	const (
		most, look = 50 * time.Millisecond, time.Millisecond
		longest    = time.Second
	)
	m := a.memory
	if !m.isOver() {
		return
	}
	for began := time.Now(); m.isOver(); {
		if waited := time.Since(began); waited >= longest || waited >= most && a.mayGoOn() {
			return
		}
		m.press()
		time.Sleep(look)
	}
}

// mayGoOn reports whether the connection holds next to nothing, or what it has
// earned, and has few calls that wait for their turn.
func (a *Account) mayGoOn() bool {
	const few = 32
	a.mu.Lock()
	holdsLittle, isBehind := a.held <= a.idle+callCost, a.pending > few
	a.mu.Unlock()
	return holdsLittle || !isBehind && a.hasEarned(0)
}

// readSize is how many of so many bytes to read, so that there is room for the
// calls that these may open.
func (a *Account) readSize(size int) int {
	const (
		smallestCall = 16 // bytes: a frame of headers that are all known
		least        = 1 << 10
	)
	room := (a.memory.budget - a.memory.held.Load()) / callCost * smallestCall
	return int(min(int64(size), max(room, least)))
}

// hasEarned reports whether the connection would hold, with so many bytes more,
// no more than those may that finish as many calls.
func (a *Account) hasEarned(bytes int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used && (a.held-a.idle-a.deciding+bytes)/(1+a.finished+a.credit) < blamed
}
