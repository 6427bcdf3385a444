package accounts

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"golang.org/x/net/http2"
)

// spoken is the bytes of a caller.
type spoken struct {
	bytes.Buffer
	framer *http2.Framer
}

func newSpoken() *spoken {
	s := new(spoken)
	s.framer = http2.NewFramer(&s.Buffer, nil)
	s.WriteString(http2.ClientPreface)
	_ = s.framer.WriteSettings()
	return s
}

func (s *spoken) data(stream uint32, end bool, b []byte) { _ = s.framer.WriteData(stream, end, b) }

func messageOf(n int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(n)), make([]byte, n)...)
}

// The frames hold the same in whatever parts the bytes come.
func TestFramesHoldTheSameInAnyParts(t *testing.T) {
	const open = openRequestCost + frameCost
	for _, c := range []struct {
		name string
		say  func(s *spoken)
		held int64
	}{
		{"nothing", func(*spoken) {}, 0},
		{"a whole call", func(s *spoken) { s.data(1, true, messageOf(1000)) }, 0},
		{"an empty frame", func(s *spoken) { s.data(1, false, nil) }, 0},
		{"a call that lacks a byte", func(s *spoken) { s.data(1, false, messageOf(1000)[:1004]) }, open + 1004},
		{"a call that lacks its end", func(s *spoken) { s.data(1, false, messageOf(1000)) }, open + 1005},
		{"an end that comes late", func(s *spoken) { s.data(1, false, messageOf(1000)); s.data(1, true, nil) }, 0},
		{"an end with trailers", func(s *spoken) {
			s.data(1, false, messageOf(1000))
			_ = s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, EndHeaders: true, BlockFragment: make([]byte, 40)})
		}, 0},
		{"a reset", func(s *spoken) {
			s.data(1, false, messageOf(1000))
			_ = s.framer.WriteRSTStream(1, http2.ErrCodeCancel)
		}, 0},
		{"a reset of another", func(s *spoken) {
			s.data(1, false, messageOf(1000))
			_ = s.framer.WriteRSTStream(3, http2.ErrCodeCancel)
		}, open + 1005},
		{"two calls", func(s *spoken) { s.data(1, false, messageOf(10)); s.data(3, false, messageOf(20)) }, 2*open + 15 + 25},
		{"small frames", func(s *spoken) {
			for _, b := range messageOf(99) {
				s.data(1, false, []byte{b})
			}
		}, openRequestCost + 104*(frameCost+1)},
		{"only the last message of a stream", func(s *spoken) {
			for range 10 {
				s.data(1, false, messageOf(100))
			}
		}, open + 105},
		{"messages of a stream in one frame", func(s *spoken) {
			s.data(1, false, bytes.Repeat(messageOf(100), 10))
		}, open + 105},
		{"messages without content", func(s *spoken) { s.data(1, false, make([]byte, 50)) }, open + 5},
		{"padding", func(s *spoken) { _ = s.framer.WriteDataPadded(1, false, messageOf(100), make([]byte, 200)) }, open + 105},
		{"padding alone", func(s *spoken) { _ = s.framer.WriteDataPadded(1, false, nil, make([]byte, 200)) }, open},
		{"other frames", func(s *spoken) {
			_ = s.framer.WritePing(false, [8]byte{})
			_ = s.framer.WriteWindowUpdate(0, 10)
			_ = s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: make([]byte, 300)})
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			for range 50 {
				s := newSpoken()
				c.say(s)
				var f frameReader
				held := int64(0)
				for s.Len() > 0 {
					change, _, _ := f.read(s.Next(1 + random.IntN(100)))
					held += change
				}
				if held != c.held {
					t.Fatalf("%d bytes are held, want %d", held, c.held)
				}
			}
		})
	}
}

// No bytes break the reader, and it never counts less than nothing.
func FuzzFrames(f *testing.F) {
	s := newSpoken()
	s.data(1, false, messageOf(100))
	_ = s.framer.WriteDataPadded(3, false, messageOf(1), make([]byte, 9))
	f.Add(s.Bytes())
	f.Add(append([]byte(http2.ClientPreface), 0, 0, 1, 0, 8, 0, 0, 0, 1, 255))
	f.Fuzz(func(t *testing.T, in []byte) {
		var r frameReader
		held := int64(0)
		for len(in) > 0 {
			n := min(7, len(in))
			change, calls, _ := r.read(in[:n])
			if held += change; held < 0 || calls < 0 {
				t.Fatalf("%d bytes are held", held)
			}
			in = in[n:]
		}
	})
}

func TestFramesCountCalls(t *testing.T) {
	s := newSpoken()
	for _, stream := range []uint32{1, 3, 3, 7} { // the second frame of 3 has trailers
		_ = s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, BlockFragment: make([]byte, 40)})
		s.data(stream, true, messageOf(10))
	}
	var f frameReader
	if _, calls, _ := f.read(s.Bytes()); calls != 3 {
		t.Errorf("%d calls, want 3", calls)
	}
}

func TestWholeCallsAllocateNothing(t *testing.T) {
	s := newSpoken()
	s.data(1, true, messageOf(100))
	var f frameReader
	if n := testing.AllocsPerRun(100, func() { f.read(s.Bytes()[len(http2.ClientPreface):]) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// At the end of a request the reader reports the bytes that callCost does not
// cover.
func TestFramesCountUnreadBytes(t *testing.T) {
	for _, c := range []struct {
		name   string
		say    func(s *spoken)
		unread int64
	}{
		{"small", func(s *spoken) { s.data(1, true, messageOf(1000)) }, 0},
		{"one frame", func(s *spoken) { s.data(1, true, messageOf(10_000)) }, 10_005 - smallRequest},
		{"several frames", func(s *spoken) {
			s.data(1, false, messageOf(20_000)[:15_000])
			s.data(1, true, messageOf(20_000)[15_000:])
		}, 20_005 + frameCost - smallRequest},
		{"several frames and an end", func(s *spoken) {
			s.data(1, false, messageOf(10_000))
			s.data(1, true, nil)
		}, 10_005 + frameCost - smallRequest},
		{"several frames and a reset", func(s *spoken) {
			s.data(1, false, messageOf(10_000))
			_ = s.framer.WriteRSTStream(1, http2.ErrCodeCancel)
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSpoken()
			c.say(s)
			var f frameReader
			if change, _, unread := f.read(s.Bytes()); change != 0 || unread != c.unread {
				t.Errorf("%d bytes are unread, %d held beside them; wanted: %d, 0", unread, change, c.unread)
			}
		})
	}
}
