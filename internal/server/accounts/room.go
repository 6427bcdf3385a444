package accounts

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// reserve charges bytes once there is room for them. Its error is a status for
// the caller, after a wait of waitsFor.
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

// HoldDeciding charges bytes that wait for the store, once there is room for them. Its error
// is that of reserve.
func (a *Account) HoldDeciding(ctx context.Context, bytes int64) error {
	err := a.reserve(ctx, bytes)
	if err == nil && a != nil {
		a.deciding.Add(bytes)
	}
	return err
}

// ReleaseDeciding gives back what HoldDeciding charged.
func (a *Account) ReleaseDeciding(bytes int64) {
	if a != nil && bytes != 0 {
		a.deciding.Add(-bytes)
		a.Add(-bytes)
	}
}

// errGone ends a call whose caller has gone, so nobody reads it.
var errGone = status.Error(codes.Canceled, "the caller has gone")

// await waits until there is room for bytes.
func (a *Account) await(ctx context.Context, bytes int64) error {
	m := a.memory
	if m.held.Load()+bytes <= m.budget || a.mayExceed(bytes) {
		return nil
	}
	return m.waitFor(ctx, bytes)
}

// HoldStream charges bytes of a TakeStream once the budget and MaxStreams have
// room for them. It waits until ctx ends, which holds the caller up.
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
		if isRoom = a.streams+bytes <= MaxStreams; isRoom {
			a.streams += bytes
			a.shift(bytes)
		}
	})
	return isRoom
}

// ReleaseStream gives back bytes of a TakeStream whose takes were answered.
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

// mayExceed reports whether the connection need not wait while others are to
// blame, because it finishes its calls. Such connections may exceed the budget by
// a quarter, and with small requests, or while they hold little, by as much again:
// otherwise those that hold much would keep out the others.
func (a *Account) mayExceed(bytes int64) bool {
	m := a.memory
	more := m.budget / 4
	if bytes <= callCost || a.holdsLittle(bytes) {
		more = m.budget
	}
	if m.held.Load()+bytes > m.budget+more {
		return false
	}
	m.press()
	return a.hasEarned(bytes)
}

// holdsLittle reports whether the connection, with this many bytes more, would hold
// littleHeld or less.
func (a *Account) holdsLittle(bytes int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held-a.idle+bytes <= littleHeld
}

// errMemory refuses a request without room.
var errMemory = status.Error(codes.ResourceExhausted, "the requests that are being read and answered take all the memory that they may (setting request_memory)")

func (m *Memory) waitFor(ctx context.Context, bytes int64) error {
	if m.waiting.Add(1) > maxWaiters {
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

// holdUp waits while there is no room, so that less is read from the connection:
// up to 50 ms, or up to a second for a connection that may not go on.
func (a *Account) holdUp() {
	const (
		maxWait, look = 50 * time.Millisecond, time.Millisecond
		maxStuckWait  = time.Second
	)
	m := a.memory
	if !m.isOver() {
		return
	}
	for began := time.Now(); m.isOver(); {
		if waited := time.Since(began); waited >= maxStuckWait || waited >= maxWait && a.mayGoOn() {
			return
		}
		m.press()
		time.Sleep(look)
	}
}

// mayGoOn reports whether the connection holds next to nothing, or holds what it
// has earned and has few pending calls.
func (a *Account) mayGoOn() bool {
	const few = 32
	a.mu.Lock()
	holdsLittle, isBehind := a.held <= a.idle+callCost, a.pending > few
	a.mu.Unlock()
	return holdsLittle || !isBehind && a.hasEarned(0)
}

// readSize returns how many of size bytes to read, so that the calls that they may open
// have room.
func (a *Account) readSize(size int) int {
	const (
		smallestCall = 16 // bytes: a frame of headers that are all known
		least        = 1 << 10
	)
	room := (a.memory.budget - a.memory.held.Load()) / callCost * smallestCall
	return int(min(int64(size), max(room, least)))
}

// hasEarned reports whether the connection, with this many bytes more, would hold less
// than blamed for each call that it finished lately.
func (a *Account) hasEarned(bytes int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used && (a.held-a.idle-a.deciding.Load()+bytes)/(1+a.finished+a.credit) < blamed
}
