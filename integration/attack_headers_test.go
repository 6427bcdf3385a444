package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func headerAttackers() []attacker {
	var short, long []hpack.HeaderField
	for i := range 200 {
		short = append(short, hpack.HeaderField{Name: fmt.Sprintf("a%d", i)})
	}
	for i := range 4 {
		long = append(long, hpack.HeaderField{Name: fmt.Sprintf("a%d", i), Value: strings.Repeat("x", 1900)})
	}
	return []attacker{
		{"grpc calls of many headers", floodOf(short)},
		{"grpc calls of long headers", floodOf(long)},
		{"grpc calls of headers over the bound", floodOf(append(append([]hpack.HeaderField(nil), long...), long...))},
		{"http requests of many headers", httpHeaders},
		{"http requests that never begin", httpNeverBegin},
		{"rapid resets", rapidResets},
		{"pings and settings", pingsAndSettings},
	}
}

// floodOf opens calls with the headers and sends nothing more.
func floodOf(fields []hpack.HeaderField) func(ctx context.Context, v *target) {
	return func(ctx context.Context, v *target) {
		holdOpen(ctx, v, 4096, func(h *rawHTTP2) { h.open(shouldRateLimit, fields...) })
	}
}

func httpHeaders(ctx context.Context, v *target) {
	var text strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&text, "%x:\r\n", i)
	}
	manyHTTP(ctx, v, "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n"+text.String()[:15<<10]+":\r\n\r\n")
}

func httpNeverBegin(ctx context.Context, v *target) {
	manyHTTP(ctx, v, "GET / HTTP/1.1\r\n"+strings.Repeat("a:\r\n", 4000))
}

// manyHTTP sends a text on new connections and keeps them.
func manyHTTP(ctx context.Context, v *target, text string) {
	again(ctx, 100*time.Millisecond, func() {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", v.http)
		if err != nil {
			return
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		go func() {
			defer stop()
			defer conn.Close()
			_, _ = io.WriteString(conn, text)
			_, _ = io.Copy(io.Discard, conn)
		}()
	})
}

func rapidResets(ctx context.Context, v *target) {
	resetCalls(ctx, v.grpc, "x", takeOne, grpcMessage(manyLimits(1)))
}

// resetCalls begins calls to a host and takes each back at once.
func resetCalls(ctx context.Context, address, host, path string, message []byte) {
	again(ctx, 100*time.Millisecond, func() {
		h, err := dialHTTP2(ctx, address, 1<<20, true)
		if err != nil {
			return
		}
		defer h.conn.Close()
		for range 20_000 {
			stream := h.openAs(host, path)
			_ = h.send(stream, message, 16<<10, true)
			if h.framer.WriteRSTStream(stream, http2.ErrCodeCancel) != nil || h.isEnded() {
				return
			}
		}
	})
}

// pingsAndSettings need answers, and the attacker reads none.
func pingsAndSettings(ctx context.Context, v *target) { pingAt(ctx, v.grpc) }

func pingAt(ctx context.Context, address string) {
	again(ctx, 100*time.Millisecond, func() {
		h, err := dialHTTP2(ctx, address, 1<<20, false)
		if err != nil {
			return
		}
		go func() {
			defer h.conn.Close()
			for i := 0; ctx.Err() == nil; i++ {
				_ = h.framer.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: uint32(i)})
				if h.framer.WritePing(false, [8]byte{}) != nil {
					return
				}
			}
		}()
	})
}
