package overload

import (
	"encoding/binary"
	"net"

	"golang.org/x/net/http2"
)

const (
	// grpcCost is what a gRPC connection holds without a call, in bytes: buffers,
	// goroutines, tables of headers.
	grpcCost = 48 << 10
	// frameCost is what a piece of a message holds besides its bytes.
	frameCost = 128
)

// Listener counts the connections of a gRPC server, whose credentials call Conn.Follow.
type Listener struct {
	net.Listener
	Guard *Guard
}

// Accept implements net.Listener.
func (l Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.Guard.open(conn, grpcCost), nil
}

// grpcConn follows the frames of a connection: a call holds what it has sent until its
// answer has left.
type grpcConn struct {
	net.Conn // with TLS, if the server has any
	counted  *Conn

	// counted.mu guards these. calls are the bytes that open calls hold, by their streams.
	// last is the last stream that was opened.
	received, written frames
	calls             map[uint32]int64
	last              uint32
	// change and finished are those of the frames that are being followed.
	change, finished int64
}

// Follow returns conn, which is c after the handshake, as a connection whose calls are
// counted.
func (c *Conn) Follow(conn net.Conn) net.Conn {
	f := &readyConn{grpcConn: grpcConn{Conn: conn, counted: c, calls: make(map[uint32]int64)}}
	f.received = frames{preface: len(http2.ClientPreface), each: f.receive}
	f.written.each = f.write
	if conn == net.Conn(c) {
		f.raw = rawReads(c.Conn)
	}
	if f.raw == nil {
		return &f.grpcConn
	}
	f.try = f.tryRead
	return f
}

// Read implements net.Conn.
func (c *grpcConn) Read(b []byte) (int, error) {
	c.counted.slow()
	n, err := c.Conn.Read(b)
	c.follow(&c.received, b[:n])
	return n, err
}

// Write implements net.Conn.
func (c *grpcConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.follow(&c.written, b[:n])
	return n, err
}

func (c *grpcConn) follow(f *frames, b []byte) {
	c.counted.mu.Lock()
	c.change, c.finished = 0, 0
	f.scan(b)
	c.counted.addSent(c.change)
	if c.finished > 0 {
		c.counted.finished.Add(c.finished)
	}
	c.counted.mu.Unlock()
	c.counted.guard.relieve()
}

// receive follows a frame that the caller sends.
func (c *grpcConn) receive(kind http2.FrameType, _ http2.Flags, stream uint32, size int64) {
	switch kind {
	case http2.FrameHeaders:
		if stream > c.last {
			c.last = stream
			c.hold(stream, 0, callCost)
		}
	case http2.FrameRSTStream:
		c.hold(stream, c.calls[stream], 0)
	case http2.FrameData, http2.FrameContinuation:
		if held, isOpen := c.calls[stream]; isOpen {
			c.hold(stream, held, held+size+frameCost)
		}
	}
}

// write follows a frame that the daemon sends.
func (c *grpcConn) write(kind http2.FrameType, flags http2.Flags, stream uint32, _ int64) {
	isEnd := kind == http2.FrameRSTStream || kind == http2.FrameHeaders && flags.Has(http2.FlagHeadersEndStream)
	if !isEnd && kind != http2.FrameData {
		return
	}
	held, isOpen := c.calls[stream]
	switch {
	case !isOpen:
		return
	case isEnd:
		c.hold(stream, held, 0)
	default: // an answer; a stream goes on
		c.hold(stream, held, callCost)
		c.finished++
	}
}

// hold changes what a call holds; 0 ends it.
func (c *grpcConn) hold(stream uint32, before, after int64) {
	c.change += after - before
	if after == 0 {
		delete(c.calls, stream)
	} else if after != before {
		c.calls[stream] = after
	}
}

// frames calls each for the head of each frame of HTTP/2.
type frames struct {
	each    func(kind http2.FrameType, flags http2.Flags, stream uint32, size int64)
	preface int // bytes of it that have not come
	head    [9]byte
	have    int // bytes of head that have come
	left    int // bytes of the current frame that have not come
}

func (f *frames) scan(b []byte) {
	n := min(f.preface, len(b))
	f.preface -= n
	for b = b[n:]; len(b) > 0; b = b[n:] {
		if f.left > 0 {
			n = min(f.left, len(b))
			f.left -= n
			continue
		}
		n = copy(f.head[f.have:], b)
		f.have = (f.have + n) % len(f.head)
		if f.have == 0 {
			f.left = int(binary.BigEndian.Uint32(f.head[:]) >> 8)
			stream := binary.BigEndian.Uint32(f.head[5:]) & (1<<31 - 1)
			f.each(http2.FrameType(f.head[3]), http2.Flags(f.head[4]), stream, int64(f.left))
		}
	}
}
