package integration

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

const (
	// unreadMemory is the daemon's memory limit, which it must not exceed by more than
	// unreadMore while no one reads what it answers on the unreadConnections for each page.
	unreadMemory, unreadMore = 400 << 20, 64 << 20
	unreadConnections        = 100
	viewerToken              = "a viewer's token for tests"
)

// startWithMuch runs a daemon with 100,000 rules and 20,000 assignments.
func startWithMuch(t *testing.T) *victim {
	t.Helper()
	const domains, rules, assignments = 10, 10_000, 20_000
	dir := t.TempDir()
	for i := range domains {
		var limits strings.Builder
		fmt.Fprintf(&limits, "domain: domain-%d\ndescriptors:\n", i)
		for j := range rules {
			fmt.Fprintf(&limits, "- {key: tenant, value: tenant-%d, rate_limit: {requests: 10, period: 1m}}\n", j)
		}
		write(t, dir, fmt.Sprintf("%d.yaml", i), limits.String())
	}
	tokens := fmt.Sprintf("- {name: ops, role: operator, sha256: %x}\n- {name: viewer, role: viewer, sha256: %x}\n",
		sha256.Sum256([]byte(operatorToken)), sha256.Sum256([]byte(viewerToken)))
	d := launch(t, []string{fmt.Sprint("GOMEMLIMIT=", unreadMemory)},
		"--limits-path", dir, "--admin-tokens-file", write(t, t.TempDir(), "tokens.yaml", tokens))
	d.waitServing()
	for i := 0; i < assignments; i += 1000 {
		var puts []string
		for j := range 1000 {
			puts = append(puts, fmt.Sprintf(`{"assignment":{"domain":"domain-0","entries":[{"key":"tenant","value":"customer-%d"}],"blocked":true,"reason":%q}}`,
				i+j, strings.Repeat("because ", 12)))
		}
		if code, text := d.askPage(t, "POST", "/admin/v1/assignments", operatorToken, `{"puts":[`+strings.Join(puts, ",")+`]}`); code != http.StatusOK {
			t.Fatalf("%d %s", code, text)
		}
	}
	return &victim{daemon: d}
}

// askPage asks the admin port.
func (d *daemon) askPage(t testing.TB, method, path, token, body string) (code int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+d.admin+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return response.StatusCode, string(all)
}

// asksAndDoesNotRead asks for a page over HTTP until it is not refused, and reads no more
// than that.
func asksAndDoesNotRead(path string) func(ctx context.Context, address string) {
	ask := func(ctx context.Context, address string) (answered bool) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return false
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, viewerToken)
		const head = "HTTP/1.1 200"
		line := make([]byte, len(head))
		if _, err := io.ReadFull(conn, line); err == nil && string(line) == head {
			return true
		}
		stop()
		_ = conn.Close()
		return false
	}
	return func(ctx context.Context, address string) {
		for ctx.Err() == nil && !ask(ctx, address) {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// callsAndDoesNotRead makes ten calls over gRPC.
func callsAndDoesNotRead(method string, request proto.Message) func(ctx context.Context, address string) {
	return func(ctx context.Context, address string) {
		const window = 1 << 10
		h, err := dialHTTP2(ctx, address, window, false)
		if err != nil {
			return
		}
		message, err := proto.Marshal(request)
		if err != nil {
			panic(err)
		}
		for range 10 {
			stream := h.openAs("localhost", "/ratelimit.admin.v1.AdminService/"+method, hpack.HeaderField{Name: "authorization", Value: "Bearer " + viewerToken})
			_ = h.send(stream, grpcMessage(message), 16<<10, true)
		}
		_ = h.out.Flush()
	}
}

// Long answers of the admin port that no one reads take a bounded number of bytes, whatever
// the number of connections, and its health is answered meanwhile.
func TestUnreadPagesHoldBoundedMemory(t *testing.T) {
	v := startWithMuch(t)
	before := v.memoryOf("VmRSS")
	ctx, cancel := context.WithTimeout(t.Context(), soaktest.Long(4*time.Second, time.Minute))
	defer cancel()
	for _, ask := range []func(ctx context.Context, address string){
		asksAndDoesNotRead("/rlconfig"),
		asksAndDoesNotRead("/metrics"),
		asksAndDoesNotRead("/debug/pprof/goroutine?debug=2"),
		asksAndDoesNotRead("/admin/v1/domains"),
		asksAndDoesNotRead("/admin/v1/rules?domain=domain-0"),
		asksAndDoesNotRead("/admin/v1/assignments?page_size=10000"),
		asksAndDoesNotRead("/admin/v1/audit?page_size=1000"),
		callsAndDoesNotRead("GetRule", &adminv1.GetRuleRequest{Domain: "domain-0"}),
		callsAndDoesNotRead("ListAssignments", &adminv1.ListAssignmentsRequest{PageSize: 10_000}),
		callsAndDoesNotRead("ListAudit", &adminv1.ListAuditRequest{PageSize: 1000}),
	} {
		for range unreadConnections {
			go ask(ctx, v.admin)
		}
	}
	for ctx.Err() == nil {
		if code, text := v.askPage(t, "GET", "/healthz", "", ""); code != http.StatusOK {
			t.Errorf("/healthz: %d %s", code, text)
		}
		time.Sleep(20 * time.Millisecond)
	}
	peak := v.memoryOf("VmHWM")
	t.Logf("%d MiB before, %d MiB at most", before>>20, peak>>20)
	if peak > unreadMemory+unreadMore {
		t.Errorf("the daemon took %d MiB of %d", peak>>20, int64(unreadMemory+unreadMore)>>20)
	}
	asynctest.Eventually(t, "the rules are answered afterwards", func() bool {
		code, text := v.askPage(t, "GET", "/admin/v1/rules?domain=domain-0", viewerToken, "")
		return code == http.StatusOK && strings.Count(text, `"path"`) == 10_000
	})
}
