package integration

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
)

// Callers who finish their calls and hold little are not delayed by 200 who send a part of a
// body and then a byte a second. Their 99th percentile is bounded beside that of the same
// callers without the attack, on the same machine: a wait in each read, of 50 ms before
// those that hold much, would exceed it, and a busy machine delays both.
func TestSlowBodiesDelayNobodyElse(t *testing.T) {
	const connections, part, most = 200, 32 << 10, 20 * time.Millisecond
	long := soaktest.Long(3*time.Second, 20*time.Second)
	v := startVictim(t)
	measure := func() *goodCallers {
		g := v.callInGood(t)
		time.Sleep(long)
		g.goHome()
		return g
	}
	// One of three rounds suffices, since other programs may delay any one of them.
	for round := 1; ; round++ {
		before := measure()
		ctx, cancel := context.WithCancel(t.Context())
		for range connections {
			sendSlowly(ctx, t, v.http, part)
		}
		during := measure()
		cancel()
		delayed := ""
		for name, l := range during.ledgers {
			own, attacked := before.ledgers[name].percentile(.99), l.percentile(.99)
			t.Logf("%s: %v before, %v during the attack; half within %v and %v", name, own, attacked, before.ledgers[name].percentile(.5), l.percentile(.5))
			if l.failed > 0 || l.percentile(.5) > before.ledgers[name].percentile(.5)+most || attacked > 2*own+most {
				delayed += fmt.Sprintf(" %s: %v after %v, %d failed: %v;", name, attacked, own, l.failed, l.failure)
			}
		}
		if delayed == "" {
			return
		}
		if round == 3 {
			t.Fatalf("delayed are%s", delayed)
		}
	}
}

// sendSlowly begins a request with a part of its body, and then sends a byte of it a second.
func sendSlowly(ctx context.Context, t *testing.T, address string, part int) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", 2*part, strings.Repeat(" ", part)); err != nil {
		t.Fatal(err)
	}
	go again(ctx, time.Second, func() { _, _ = conn.Write([]byte{' '}) })
}
