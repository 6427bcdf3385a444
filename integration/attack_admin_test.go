package integration

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/net/http2/hpack"
)

// adminAttackers attack the operators' port as anybody on the machine may, who needs
// no token there.
func adminAttackers() []attacker {
	const service = "/ratelimit.admin.v1.AdminService/"
	list := []byte{0x3a, 0} // of services
	return []attacker{
		{"reflection without an end at the admin port", onAdmin(func(h *rawHTTP2) {
			stream := h.openAs("localhost", reflects)
			data := bytes.Repeat(grpcMessage(list), 2000)
			for sent := 0; !h.isEnded(); {
				if h.mayStill(stream, sent) < len(data) || h.mayStill(0, sent) < len(data) {
					time.Sleep(time.Millisecond)
					continue
				}
				_ = h.send(stream, data, 16<<10, false)
				sent += len(data)
				// A request that is answered lets the connection look busy.
				_ = h.send(h.openAs("localhost", service+"ListDomains"), grpcMessage(nil), 16<<10, true)
				if h.out.Flush() != nil {
					return
				}
			}
		})},
		{"messages in single bytes at the admin port", onAdmin(func(h *rawHTTP2) {
			stream := h.openAs("localhost", service+"ListAssignments")
			message := grpcMessage(make([]byte, 60_000))
			for _, b := range message {
				_ = h.send(stream, []byte{b}, 1, false)
				if h.out.Flush() != nil {
					return
				}
			}
		})},
		{"watches at the admin port", onAdmin(func(h *rawHTTP2) {
			for range 100 {
				_ = h.send(h.openAs("localhost", service+"WatchAssignments"), grpcMessage(nil), 16<<10, true)
			}
			_ = h.out.Flush()
			time.Sleep(time.Second)
		})},
		{"rapid resets at the admin port", func(ctx context.Context, v *target) {
			resetCalls(ctx, v.admin, "localhost", service+"ListDomains", grpcMessage(nil))
		}},
		{"scrapers that do not read", doNotRead("/metrics")},
		{"readers of the rules who do not read", doNotRead("/rlconfig")},
		{"readers of the audit who do not read", doNotRead("/admin/v1/audit")},
		{"pings and settings at the admin port", func(ctx context.Context, v *target) { pingAt(ctx, v.admin) }},
		{"lists of a long prefix at the admin port", onAdmin(func(h *rawHTTP2) {
			const length = 50_000
			prefix := append([]byte{0x12, length&0x7f | 0x80, length>>7&0x7f | 0x80, length >> 14}, bytes.Repeat([]byte("a"), length)...)
			_ = h.send(h.openAs("localhost", service+"ListAssignments"), grpcMessage(prefix), 16<<10, true)
			_ = h.out.Flush()
		})},
	}
}

// openAs begins a call to a host of that name.
func (h *rawHTTP2) openAs(host, path string, more ...hpack.HeaderField) uint32 {
	h.host = host
	return h.open(path, more...)
}

// onAdmin acts on connections to the admin port, two every second.
func onAdmin(do func(h *rawHTTP2)) func(ctx context.Context, v *target) {
	return func(ctx context.Context, v *target) {
		again(ctx, 500*time.Millisecond, func() {
			h, err := dialHTTP2(ctx, v.admin, 1<<20, true)
			if err != nil {
				return
			}
			go func() {
				defer h.conn.Close()
				do(h)
			}()
		})
	}
}

// doNotRead asks for so many pages that they do not fit into sockets, reads none, and comes
// again, so that more wait for a page than are made at a time.
func doNotRead(path string) func(ctx context.Context, v *target) {
	const pages = 200
	requests := strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n", pages)
	return func(ctx context.Context, v *target) {
		again(ctx, 50*time.Millisecond, func() {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", v.admin)
			if err != nil {
				return
			}
			_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = io.WriteString(conn, requests)
			time.AfterFunc(5*time.Second, func() { _ = conn.Close() })
		})
	}
}
