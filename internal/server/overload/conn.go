package overload

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// socketBuffer bounds the bytes that the kernel keeps of a connection each way. Without it
// that is megabytes, which count as the container's memory.
const socketBuffer = 128 << 10

// Conn counts what a connection makes the process hold. A nil Conn counts nothing.
type Conn struct {
	net.Conn
	guard *Guard
	// cost is what the connection holds by itself.
	cost int64
	// held are cost, bytes that were sent and that no call has finished, and what handlers
	// hold.
	held atomic.Int64
	// finished counts calls since the last age, and credit those before, halved at each age.
	finished, credit atomic.Int64
	// idle counts ages without a call. Guard.mu guards it.
	idle int

	mu     sync.Mutex
	closed bool
	// sent is the part of held that ends with the connection.
	sent int64
}

// open counts a connection that costs this many bytes by itself.
func (g *Guard) open(conn net.Conn, cost int64) *Conn {
	if s, ok := conn.(interface {
		SetReadBuffer(bytes int) error
		SetWriteBuffer(bytes int) error
	}); ok {
		_ = s.SetReadBuffer(socketBuffer) // the system's will do
		_ = s.SetWriteBuffer(socketBuffer)
	}
	c := &Conn{Conn: conn, guard: g, cost: cost, sent: cost}
	g.mu.Lock()
	g.conns[c] = struct{}{}
	g.mu.Unlock()
	c.Add(cost)
	return c
}

// addSent counts bytes that end with the connection. c.mu is held.
func (c *Conn) addSent(bytes int64) {
	if !c.closed && bytes != 0 {
		c.sent += bytes
		c.Add(bytes)
	}
}

// Add counts bytes that a handler holds, even if the connection ends; negative bytes are
// given back.
func (c *Conn) Add(bytes int64) {
	if c != nil && bytes != 0 {
		c.held.Add(bytes)
		c.guard.held.Add(bytes)
	}
}

var errMemory = status.Error(codes.ResourceExhausted, "the requests that are being read and answered take all the memory that they may (setting request_memory)")

// Reserve is Add if there is room. A connection that finishes calls and holds little may
// go beyond the budget, so that those that hold much do not keep it out, and what any call
// holds needs no room. The error is a status for the caller.
func (c *Conn) Reserve(bytes int64) error {
	if c == nil {
		return nil
	}
	g, held := c.guard, c.held.Add(bytes)-c.cost
	all := g.held.Add(bytes)
	isLittle := held <= littleHeld && c.finished.Load()+c.credit.Load() > 0
	if bytes <= callCost || all <= g.budget && !g.isFull.Load() || isLittle && all <= littleBudgets*g.budget {
		return nil
	}
	c.Add(-bytes)
	g.relieve()
	return errMemory
}

// blame returns how many bytes the connection holds for each call that it finished lately.
func (c *Conn) blame() int64 {
	return (c.held.Load() - c.cost) / (1 + c.credit.Load() + c.finished.Load())
}

// slow waits before more is read from a connection that holds much for the calls that it
// finishes. Others are not delayed.
func (c *Conn) slow() {
	if c.guard.held.Load() > c.guard.budget/slowFrom && c.blame() >= minBlame {
		time.Sleep(slowdown)
	}
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	g := c.guard
	c.mu.Lock()
	leaves := max(0, c.sent-c.cost)
	if c.closed {
		leaves = 0
	}
	c.addSent(-c.sent)
	c.closed = true
	c.mu.Unlock()
	g.mu.Lock()
	delete(g.conns, c)
	leaves = min(leaves, g.budget-g.leaving)
	g.leaving += leaves
	g.mu.Unlock()
	g.held.Add(leaves)
	return c.Conn.Close()
}

// Of returns the connection of a call of gRPC or of a request of HTTP, or nil.
func Of(ctx context.Context) *Conn {
	if c, ok := ctx.Value(connKey{}).(*httpConn); ok {
		return c.Conn
	}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(interface{ Overload() *Conn }); ok {
			return info.Overload()
		}
	}
	return nil
}

// Charge is what a call of gRPC holds.
type Charge struct {
	conn    *Conn
	bytes   int64
	refused error
}

// Begin returns the charge of a call, which ends with End. Its error is a status if the
// caller has disconnected.
func Begin(ctx context.Context) (Charge, error) {
	if err := ctx.Err(); err != nil {
		return Charge{}, status.FromContextError(err).Err()
	}
	return Charge{conn: Of(ctx)}, nil
}

// Held returns the charge, so that a message may embed it.
func (h *Charge) Held() *Charge { return h }

// Reserve reserves bytes beyond those that any call holds.
func (h *Charge) Reserve(bytes int64) error {
	if h.conn == nil || bytes <= callCost/8 {
		return nil
	}
	err := h.conn.Reserve(bytes)
	if err == nil {
		h.bytes += bytes
	}
	return err
}

// ReserveUnread reserves the bytes of a message before it is read. Refused returns its
// error too.
func (h *Charge) ReserveUnread(bytes int64) error {
	h.refused = h.Reserve(bytes)
	return h.refused
}

// Refused returns why the message was not read, as a status, or nil.
func (h *Charge) Refused() error { return h.refused }

// Answer returns the charge of the call's answer of this many bytes.
func (h *Charge) Answer(bytes int) Charge {
	a := Charge{conn: h.conn}
	if bytes > callCost/8 {
		a.bytes = int64(bytes)
		a.conn.Add(a.bytes)
	}
	return a
}

// End gives back all that was reserved. A second End does nothing.
func (h *Charge) End() {
	h.conn.Add(-h.bytes)
	*h = Charge{}
}
