package accounts

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// frameReader follows the frames of HTTP/2 that a caller sends, and the messages of gRPC
// in them. It counts the bytes of requests that have begun but not ended. Nearly all
// requests come whole in one frame, and cost it nothing.
type frameReader struct {
	preface int // bytes of the client's preface that have come
	header  [9]byte
	have    int // bytes of header that have come

	// The current frame.
	left   int // bytes of it that have not come yet
	pad    int // bytes of padding at its end; -1: the length has not come yet
	open   *openRequest
	opened map[uint32]*openRequest
	last   uint32 // the stream that was opened last
	// Since the last read: the change of the bytes held, the calls opened, and the
	// bytes of requests that have ended.
	change, calls, unread int64
}

// openRequest is a stream that has not ended.
type openRequest struct {
	// held counts the bytes since the last message began. That message may have
	// been read already.
	held   int64
	prefix [5]byte // of a message: the flag for compression, and the length
	have   int     // bytes of prefix that have come
	left   int     // bytes of the message that have not come yet
}

const (
	// openRequestCost is the size of an openRequest and its place in the map.
	openRequestCost = 160
	// frameCost is what gRPC holds for a frame besides its bytes.
	frameCost = 64
)

// read follows bytes that have come. It returns the change of the bytes held for
// requests that have not ended, the number of calls opened, and the bytes of
// requests that have ended, small ones aside.
func (f *frameReader) read(b []byte) (change, calls, unread int64) {
	if f.preface < len(http2.ClientPreface) {
		n := min(len(http2.ClientPreface)-f.preface, len(b))
		f.preface += n
		b = b[n:]
	}
	for len(b) > 0 {
		if f.left > 0 {
			b = f.payload(b)
			continue
		}
		if f.have == 0 && len(b) >= len(f.header) { // as nearly always
			f.frame(b)
			b = b[len(f.header):]
			continue
		}
		n := copy(f.header[f.have:], b)
		f.have += n
		b = b[n:]
		if f.have == len(f.header) {
			f.have = 0
			f.frame(f.header[:])
		}
	}
	change, calls, unread = f.change, f.calls, f.unread
	f.change, f.calls, f.unread = 0, 0, 0
	return change, calls, unread
}

// frame begins a frame with its header.
func (f *frameReader) frame(header []byte) {
	_ = header[8]
	length := int(header[0])<<16 | int(header[1])<<8 | int(header[2])
	kind, flags := http2.FrameType(header[3]), http2.Flags(header[4])
	stream := binary.BigEndian.Uint32(header[5:]) & (1<<31 - 1)
	f.left, f.pad, f.open = length, 0, nil
	switch kind {
	case http2.FrameRSTStream:
		f.end(stream)
	case http2.FrameHeaders:
		if stream > f.last {
			f.last = stream
			f.calls++
		}
		if flags.Has(http2.FlagHeadersEndStream) {
			f.unread += max(0, f.end(stream)-smallRequest)
		}
	case http2.FrameData:
		if flags.Has(http2.FlagDataEndStream) {
			f.unread += max(0, f.end(stream)+int64(length)-smallRequest)
			return
		}
		if length == 0 {
			return
		}
		f.open = f.opened[stream]
		if f.open == nil {
			f.begin(stream)
		}
		f.hold(frameCost)
		if flags.Has(http2.FlagDataPadded) {
			f.pad = -1
		}
	}
}

func (f *frameReader) begin(stream uint32) {
	if f.opened == nil {
		f.opened = make(map[uint32]*openRequest)
	}
	f.open = new(openRequest)
	f.opened[stream] = f.open
	f.change += openRequestCost
}

// end forgets a stream that has ended, and returns the bytes held for it.
func (f *frameReader) end(stream uint32) (held int64) {
	open := f.opened[stream]
	if open == nil {
		return 0
	}
	f.change -= open.held + openRequestCost
	delete(f.opened, stream)
	return open.held
}

func (f *frameReader) hold(bytes int64) {
	f.open.held += bytes
	f.change += bytes
}

// payload follows the content of a frame, and returns the bytes after it.
func (f *frameReader) payload(b []byte) []byte {
	n := min(f.left, len(b))
	if f.open != nil {
		content := b[:n]
		if f.pad < 0 {
			f.pad = int(content[0])
			content = content[1:]
		}
		f.data(content[:max(0, min(len(content), f.left-(n-len(content))-f.pad))])
	}
	f.left -= n
	return b[n:]
}

// data follows a part of a stream.
func (f *frameReader) data(b []byte) {
	o := f.open
	for len(b) > 0 {
		if o.left > 0 {
			n := min(o.left, len(b))
			f.hold(int64(n))
			o.left -= n
			b = b[n:]
			continue
		}
		if o.have == 0 { // another message, so the one before has been read
			f.change -= o.held - frameCost
			o.held = frameCost
		}
		n := copy(o.prefix[o.have:], b)
		o.have += n
		b = b[n:]
		f.hold(int64(n))
		if o.have == len(o.prefix) {
			o.have = 0
			o.left = int(binary.BigEndian.Uint32(o.prefix[1:]))
		}
	}
}
