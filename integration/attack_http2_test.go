package integration

import (
	"bufio"
	"bytes"
	"context"
	bigendian "encoding/binary"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// rawHTTP2 is a connection that can break any rule of HTTP/2. It is not safe
// for concurrent use, except for its counters of what it reads.
type rawHTTP2 struct {
	conn    net.Conn
	out     *bufio.Writer
	framer  *http2.Framer
	block   bytes.Buffer
	headers *hpack.Encoder
	stream  uint32 // the last one
	host    string // that calls are to

	mu sync.Mutex
	// may is the number of bytes that the other side allows on each stream,
	// beyond its first window.
	may   map[uint32]int
	first int
	ended bool
}

// dialHTTP2 connects. The window is for the answers on a stream. If it does
// not read, it takes nothing from the connection.
func dialHTTP2(ctx context.Context, address string, window uint32, reads bool) (*rawHTTP2, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	h := &rawHTTP2{conn: conn, out: bufio.NewWriterSize(conn, 64<<10), may: make(map[uint32]int), first: 65535, host: "x"}
	h.framer = http2.NewFramer(h.out, bufio.NewReader(conn))
	h.headers = hpack.NewEncoder(&h.block)
	_, _ = h.out.WriteString(http2.ClientPreface)
	_ = h.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	if err := h.out.Flush(); err != nil {
		return nil, err
	}
	if reads {
		go h.read()
	}
	return h, nil
}

// holdOpen makes connections and acts several times on each. It keeps them
// until the context ends or the other side closes them.
func holdOpen(ctx context.Context, v *target, times int, do func(h *rawHTTP2)) {
	again(ctx, 500*time.Millisecond, func() {
		h, err := dialHTTP2(ctx, v.grpc, 1<<20, true)
		if err != nil {
			return
		}
		go func() {
			defer h.conn.Close()
			for range times {
				do(h)
				if ctx.Err() != nil || h.isEnded() {
					return
				}
			}
			_ = h.out.Flush()
			<-ctx.Done()
		}()
	})
}

func (h *rawHTTP2) read() {
	for {
		f, err := h.framer.ReadFrame()
		h.mu.Lock()
		switch f := f.(type) {
		case *http2.WindowUpdateFrame:
			h.may[f.StreamID] += int(f.Increment)
		case *http2.SettingsFrame:
			if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
				h.first = int(v)
			}
		}
		h.ended = h.ended || err != nil
		h.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (h *rawHTTP2) isEnded() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

// mayStill returns how many of these bytes may still be sent on a stream.
func (h *rawHTTP2) mayStill(stream uint32, sent int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return min(h.first+h.may[stream]-sent, 1<<20)
}

// open begins a call.
func (h *rawHTTP2) open(path string, more ...hpack.HeaderField) uint32 {
	h.stream = max(h.stream+2, 1)
	if h.stream%2 == 0 {
		h.stream--
	}
	h.block.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: path}, {Name: ":authority", Value: h.host},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}, more...) {
		_ = h.headers.WriteField(f)
	}
	first := true
	for first || h.block.Len() > 0 {
		part := h.block.Next(16 << 10)
		if first {
			_ = h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: h.stream, BlockFragment: part, EndHeaders: h.block.Len() == 0})
		} else {
			_ = h.framer.WriteContinuation(h.stream, h.block.Len() == 0, part)
		}
		first = false
	}
	return h.stream
}

// send sends bytes in frames of at most a size.
func (h *rawHTTP2) send(stream uint32, data []byte, frame int, end bool) error {
	for {
		n := min(len(data), frame)
		if err := h.framer.WriteData(stream, end && n == len(data), data[:n]); err != nil {
			return err
		}
		if data = data[n:]; len(data) == 0 {
			return nil
		}
	}
}

// grpcMessage is a message with its prefix.
func grpcMessage(message []byte) []byte {
	return append(bigendian.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// again repeats an act with a pause between, until the context ends.
func again(ctx context.Context, pause time.Duration, do func()) {
	for ctx.Err() == nil {
		do()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// together does an act several times at once.
func together(n int, do func()) {
	var all sync.WaitGroup
	for range n {
		all.Go(do)
	}
	all.Wait()
}
