// Package statsdtest is a statsd server for tests.
package statsdtest

import (
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Server keeps the lines that it gets.
type Server struct {
	// Address is host:port.
	Address string

	mu      sync.Mutex
	lines   []string
	packets []int // their bytes
}

// ListenUDP returns a server that listens on a free port until the test ends.
func ListenUDP(t testing.TB) *Server {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Address: conn.LocalAddr().String()}
	t.Cleanup(func() { conn.Close() })
	go func() {
		packet := make([]byte, 64<<10)
		for {
			n, _, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			s.add(packet[:n])
		}
	}()
	return s
}

// ListenTCP is ListenUDP over TCP, at an address, which may have the port 0. A packet is
// all that came over one connection.
func ListenTCP(t testing.TB, address string) *Server {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Address: l.Addr().String()}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if all, err := io.ReadAll(conn); err == nil && len(all) > 0 {
					s.add(all)
				}
			}()
		}
	}()
	return s
}

func (s *Server) add(packet []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packets = append(s.packets, len(packet))
	s.lines = append(s.lines, strings.Split(strings.TrimSuffix(string(packet), "\n"), "\n")...)
}

// Lines returns all lines.
func (s *Server) Lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

// Largest returns the bytes of the largest packet.
func (s *Server) Largest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Max(append(s.packets, 0))
}

// Sums returns the sum of each name followed by its tags. A line that is not a count
// fails the test.
func (s *Server) Sums(t testing.TB) map[string]uint64 {
	t.Helper()
	sums := make(map[string]uint64)
	for _, line := range s.Lines() {
		name, rest, ok := strings.Cut(line, ":")
		number, tags, isCount := strings.Cut(rest, "|c")
		n, err := strconv.ParseUint(number, 10, 64)
		if !ok || !isCount || err != nil {
			t.Errorf("no count: %q", line)
		}
		sums[name+tags] += n
	}
	return sums
}
