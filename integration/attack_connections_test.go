package integration

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"time"
)

func connectionAttackers() []attacker {
	return []attacker{
		{"connections one after the other", churn},
		{"connections that say nothing", idleConnections},
		{"connections that only begin", func(ctx context.Context, v *target) {
			again(ctx, 20*time.Millisecond, func() { _, _ = dialHTTP2(ctx, v.grpc, 1<<20, false) })
		}},
		{"connections that begin a frame", func(ctx context.Context, v *target) {
			again(ctx, 20*time.Millisecond, func() {
				if h, err := dialHTTP2(ctx, v.grpc, 1<<20, false); err == nil {
					// A frame of 16 KiB on a stream that does not exist.
					_, _ = h.conn.Write([]byte{0, 0x40, 0, 0, 0, 0, 0, 0, 1})
				}
			})
		}},
	}
}

// churn makes a hundred thousand connections at most and drops each.
func churn(ctx context.Context, v *target) {
	var made atomic.Int64
	together(4, func() {
		for ctx.Err() == nil && made.Add(1) <= 100_000 {
			address := v.grpc
			if made.Load()%2 == 0 {
				address = v.http
			}
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err != nil {
				time.Sleep(time.Millisecond)
				continue
			}
			_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n")
			_ = conn.(*net.TCPConn).SetLinger(0) // a reset spares ports
			_ = conn.Close()
		}
	})
}

func idleConnections(ctx context.Context, v *target) {
	again(ctx, 20*time.Millisecond, func() {
		for _, address := range []string{v.grpc, v.http} {
			if conn, err := new(net.Dialer).DialContext(ctx, "tcp", address); err == nil {
				context.AfterFunc(ctx, func() { _ = conn.Close() })
			}
		}
	})
}
