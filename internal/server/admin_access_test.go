package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/certtest"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/tlsfiles"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// adminMethods are all methods of the API with a request, over gRPC and in JSON,
// and the number of the roles that may call them: 3 for all, 1 for operators.
var adminMethods = []struct {
	name               string
	call               func(context.Context, adminv1.AdminServiceClient) error
	method, path, body string
	roles              int
	// local is set where whoever is on the machine may call it without a tokens file.
	local bool
}{
	{name: "ListDomains", call: func(ctx context.Context, c adminv1.AdminServiceClient) error {
		_, err := c.ListDomains(ctx, &adminv1.ListDomainsRequest{})
		return err
	}, method: "GET", path: "/domains", roles: 3},
	{name: "GetRule", call: func(ctx context.Context, c adminv1.AdminServiceClient) error {
		_, err := c.GetRule(ctx, &adminv1.GetRuleRequest{Domain: "api"})
		return err
	}, method: "GET", path: "/rules?domain=api", roles: 3},
	{name: "Explain", call: func(ctx context.Context, c adminv1.AdminServiceClient) error {
		_, err := c.Explain(ctx, &adminv1.ExplainRequest{Take: &ratelimitv1.TakeRequest{Domain: "api", Descriptors: []*ratelimitv1.Descriptor{{Entries: []*ratelimitv1.Entry{{Key: "user", Value: "x"}}}}}})
		return err
	}, method: "POST", path: "/explain", body: `{"take":{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"x"}]}]}}`, roles: 2, local: true},
	{name: "Inspect", call: func(ctx context.Context, c adminv1.AdminServiceClient) error {
		_, err := c.Inspect(ctx, &adminv1.InspectRequest{Domain: "api", Entries: []*ratelimitv1.Entry{{Key: "user", Value: "x"}}})
		return err
	}, method: "POST", path: "/inspect", body: `{"domain":"api","entries":[{"key":"user","value":"x"}]}`, roles: 2, local: true},
	{name: "Reset", call: func(ctx context.Context, c adminv1.AdminServiceClient) error {
		_, err := c.Reset(ctx, &adminv1.ResetRequest{Domain: "api", Entries: []*ratelimitv1.Entry{{Key: "user", Value: "x"}}})
		return err
	}, method: "POST", path: "/reset", body: `{"domain":"api","entries":[{"key":"user","value":"x"}]}`, roles: 2},
	{name: "PutAssignments", call: func(ctx context.Context, c adminv1.AdminServiceClient) error {
		_, err := c.PutAssignments(ctx, &adminv1.PutAssignmentsRequest{Puts: []*adminv1.PutAssignment{{Assignment: &adminv1.Assignment{
			Domain: "api", Entries: []*ratelimitv1.Entry{{Key: "user", Value: "x"}}, Blocked: true,
		}}}})
		return err
	}, method: "POST", path: "/assignments", body: `{"puts":[{"assignment":{"domain":"api","entries":[{"key":"user","value":"x"}],"blocked":true}}]}`, roles: 1},
	{name: "GetAssignment", call: func(ctx context.Context, c adminv1.AdminServiceClient) error {
		_, err := c.GetAssignment(ctx, &adminv1.GetAssignmentRequest{Domain: "api", Entries: []*ratelimitv1.Entry{{Key: "user", Value: "kept"}}})
		return err
	}, method: "GET", path: "/assignment?domain=api&entry=user=kept", roles: 3},
	{name: "ListAssignments", call: func(ctx context.Context, c adminv1.AdminServiceClient) error {
		_, err := c.ListAssignments(ctx, &adminv1.ListAssignmentsRequest{})
		return err
	}, method: "GET", path: "/assignments", roles: 3},
	{name: "DeleteAssignment", call: func(ctx context.Context, c adminv1.AdminServiceClient) error {
		_, err := c.DeleteAssignment(ctx, &adminv1.DeleteAssignmentRequest{Domain: "api", Entries: []*ratelimitv1.Entry{{Key: "user", Value: "x"}}})
		return err
	}, method: "DELETE", path: "/assignment?domain=api&entry=user=x", roles: 1},
	{name: "WatchAssignments", call: func(ctx context.Context, c adminv1.AdminServiceClient) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		stream, err := c.WatchAssignments(ctx, &adminv1.WatchAssignmentsRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) == codes.DeadlineExceeded {
			return nil // it was open for a second
		}
		return err
	}, roles: 3},
	{name: "ListDaemons", call: func(ctx context.Context, c adminv1.AdminServiceClient) error {
		_, err := c.ListDaemons(ctx, &adminv1.ListDaemonsRequest{})
		return err
	}, method: "GET", path: "/daemons", roles: 3},
	{name: "ListAudit", call: func(ctx context.Context, c adminv1.AdminServiceClient) error {
		_, err := c.ListAudit(ctx, &adminv1.ListAuditRequest{})
		return err
	}, method: "GET", path: "/audit", roles: 3},
}

// startAdmin runs a server with someMembers and an assignment of user=kept.
func startAdmin(t testing.TB, change ...func(*server.Options)) (*daemon, *assignments) {
	t.Helper()
	f := newAssignments(t)
	members, _, _ := withMembers(t, someMembers())
	d := start(t, oneLimit, append([]func(*server.Options){members, withAssignments(f)}, change...)...)
	if p := d.askAdmin("PUT", "/assignment?domain=api&entry=user=kept", "run", `{"blocked":true}`); p.code != 201 {
		t.Fatalf("%d %s", p.code, p.body)
	}
	return d, f
}

var httpCodes = map[codes.Code]int{
	codes.OK: 200, codes.InvalidArgument: 400, codes.Unauthenticated: 401, codes.PermissionDenied: 403, codes.Unimplemented: 501, codes.ResourceExhausted: 429,
}

// localLevel is the level of whoever is on the machine, without a tokens file.
const localLevel = -1

// wantEach calls every method over gRPC and in JSON. level is 3 for an operator, 0
// for nobody; refused is what nobody gets.
func wantEach(t *testing.T, d *daemon, client adminv1.AdminServiceClient, token string, level int, refused codes.Code) {
	t.Helper()
	for _, m := range adminMethods {
		want := codes.OK
		switch {
		case level == 0:
			want = refused
		case level == localLevel:
			if m.roles < 3 && !m.local {
				want = codes.PermissionDenied
			}
		case level+m.roles < 4:
			want = codes.PermissionDenied
		}
		ctx, cancel := context.WithTimeout(with(t.Context(), token), patience)
		if err := m.call(ctx, client); status.Code(err) != want {
			t.Errorf("%s with the token %q: %v, want %s", m.name, token, err, want)
		}
		cancel()
		if m.method == "" {
			continue
		}
		p := d.askAdmin(m.method, m.path, token, m.body)
		code := httpCodes[want]
		if level == 0 && refused == codes.Unimplemented {
			code = 404
		}
		if p.code != code || p.header.Get("Content-Type") != "application/json" || code != 200 && !strings.HasPrefix(p.body, `{"error":"`) {
			t.Errorf("%s %s with the token %q: %d %s, want %d", m.method, m.path, token, p.code, p.body, code)
		}
	}
}

func TestEachRoleMayCallItsMethods(t *testing.T) {
	t.Parallel()
	d, _ := startAdmin(t)
	client := d.admin(nil)
	for level, token := range []string{"", "view", "help", "run"} {
		wantEach(t, d, client, token, level, codes.Unauthenticated)
	}
}

func TestGuessedTokensAreRefusedAndCounted(t *testing.T) {
	t.Parallel()
	d, _ := startAdmin(t)
	for i := range 12 {
		p, want := d.askAdmin("GET", "/domains", "guessed-token", ""), 401
		if i >= 10 {
			want = 429
		}
		if p.code != want || strings.Contains(p.body, "guessed-token") || want == 401 && p.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("guess %d: %d %v %s", i, p.code, p.header, p.body)
		}
	}
	if p := d.askAdmin("GET", "/domains", "view", ""); p.code != 429 {
		t.Errorf("a good token from the same address: %d %s", p.code, p.body)
	}
	// Others do not suffer.
	other := &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}}
	defer other.CloseIdleConnections()
	r, err := http.NewRequest("GET", "http://"+d.srv.Address("admin")+"/admin/v1/domains", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer view")
	response, err := other.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != 200 {
		t.Errorf("a good token from another address: %s", response.Status)
	}
	d.clock.Set(d.clock.Micros() + (6 * time.Second).Microseconds())
	if p := d.askAdmin("GET", "/domains", "view", ""); p.code != 200 {
		t.Errorf("after 6 s: %d %s", p.code, p.body)
	}
	d.wantMetrics(map[string]float64{
		`ratelimitd_admin_requests_total{code="Unauthenticated",method="ListDomains"}`:   10,
		`ratelimitd_admin_requests_total{code="ResourceExhausted",method="ListDomains"}`: 3,
		`ratelimitd_admin_requests_total{code="OK",method="ListDomains"}`:                2,
	})
	for _, secret := range []string{"guessed-token", sumOf("guessed-token"), sumOf("view"), "Bearer view"} {
		if lines := d.log.lines(secret); len(lines) > 0 {
			t.Errorf("the log has %s: %s", secret, lines)
		}
		if strings.Contains(d.get("admin", "/rlconfig").body+d.get("admin", "/metrics").body, secret) {
			t.Errorf("a page has %s", secret)
		}
	}
	if lines := d.log.lines("admin request refused", "code=Unauthenticated", "method=ListDomains", "from=127.0.0.1"); len(lines) == 0 {
		t.Error("the log has nothing of it")
	}
}

func TestOnLoopbackEverybodyViewsAndExplains(t *testing.T) {
	t.Parallel()
	f := newAssignments(t)
	d := start(t, oneLimit, withAssignments(f))
	f.block("kept")
	wantEach(t, d, d.admin(nil), "", localLevel, codes.OK)
}

// Pages of the web, and proxies for others, do not count as callers on this machine.
func TestOnLoopbackRequestsOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	d := start(t, oneLimit, withAssignments(newAssignments(t)))
	address := d.srv.Address("admin")
	_, port, _ := net.SplitHostPort(address)
	for _, c := range []struct {
		name    string
		headers []string
		code    int
	}{
		{"by address", nil, 200},
		{"by name", []string{"Host", "localhost:" + port}, 200},
		{"by name with a dot", []string{"Host", "LOCALHOST.:" + port}, 200},
		{"by IPv6's address", []string{"Host", "[::1]:" + port}, 200},
		{"by the name of another (DNS rebinding)", []string{"Host", "evil.example:" + port}, 401},
		{"by a name that only begins so", []string{"Host", "localhost.evil.example"}, 401},
		{"by an address of others", []string{"Host", "192.0.2.1"}, 401},
		{"from a page of another site", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"from another port of this host", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"from the address bar", []string{"Sec-Fetch-Site", "none"}, 200},
		{"of another origin", []string{"Origin", "https://evil.example"}, 403},
		{"of no origin", []string{"Origin", "null"}, 403},
		{"of another port", []string{"Origin", "http://127.0.0.1:1"}, 403},
		{"of this origin", []string{"Origin", "http://" + address}, 200},
		{"through a proxy", []string{"X-Forwarded-For", "192.0.2.1"}, 401},
		{"through another", []string{"Forwarded", "for=192.0.2.1"}, 401},
		{"of a browser that says more", []string{"Accept-Language", "en", "Cookie", "a=b", "X-Request-Id", "1", "Traceparent", "00-1-1-01"}, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			if p := d.askAdmin("GET", "/domains", "", "", c.headers...); p.code != c.code {
				t.Errorf("%d %s, want %d", p.code, p.body, c.code)
			} else if p.header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("it lets other origins read: %v", p.header)
			}
		})
	}
	for _, header := range []string{
		"Via", "CDN-Loop", "X-Real-IP", "CF-Connecting-IP", "CF-Ray", "True-Client-IP", "Fastly-Client-IP", "Fly-Client-IP", "X-Client-IP", "X-Cluster-Client-IP",
		"X-Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Client-Cert", "X-Original-Forwarded-For", "X-Envoy-External-Address", "X-Azure-ClientIP", "X-AppEngine-User-IP",
	} {
		if p := d.askAdmin("GET", "/domains", "", "", header, "198.51.100.7"); p.code != 401 || !strings.Contains(p.body, "came through a proxy (header "+strings.ToLower(header)+")") {
			t.Errorf("with %s: %d %s", header, p.code, p.body)
		}
	}
	// A browser asks before it sends what a form cannot.
	if p := d.askAdmin("OPTIONS", "/assignments", "", "", "Origin", "http://"+address, "Access-Control-Request-Method", "POST"); p.code != 405 {
		t.Errorf("a browser's question: %d %s", p.code, p.body)
	}
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "origin", "https://evil.example"), patience)
	defer cancel()
	if _, err := d.admin(nil).ListDomains(ctx, &adminv1.ListDomainsRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("over gRPC: %v", err)
	}
}

// A page of the web whose name leads here (DNS rebinding) reads none of the pages that
// want no credentials. Whoever names this machine does, and so do scrapers.
func TestOnLoopbackPagesAreForRequestsToThisMachine(t *testing.T) {
	t.Parallel()
	members, _, _ := withMembers(t, someMembers())
	loopback := func(o *server.Options) {
		o.Admin.Pprof, o.Admin.MetricsAddress, o.Admin.MetricsPath = true, "127.0.0.1:0", "/metrics"
	}
	d := start(t, oneLimit, members, loopback)
	_, port, _ := net.SplitHostPort(d.srv.Address("admin"))
	elsewhere := start(t, oneLimit, func(o *server.Options) {
		o.Admin.Address, o.Admin.MetricsAddress, o.Admin.MetricsPath = "0.0.0.0:0", "0.0.0.0:0", "/metrics"
	})
	pages := []string{"/", "/metrics", "/rlconfig", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline"}
	for _, c := range []struct {
		name, host, token string
		code              int
	}{
		{name: "by address", host: "127.0.0.1:" + port, code: 200},
		{name: "by name", host: "localhost:" + port, code: 200},
		{name: "by IPv6's address", host: "[::1]:" + port, code: 200},
		{name: "by IPv6's address alone", host: "[::1]", code: 200},
		{name: "by name, with a token of another", host: "localhost:" + port, token: "guessed", code: 200},
		{name: "by the name of another", host: "evil.example:" + port, code: 403},
		{name: "by a name that begins so", host: "localhost.evil.example", code: 403},
		{name: "by the name of another, with a guessed token", host: "evil.example:" + port, token: "guessed", code: 403},
		{name: "by another name, with a token", host: "ops.corp:" + port, token: "view", code: 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, path := range pages {
				if p := d.getAs("admin", path, c.host, c.token); p.code != c.code || c.code == 403 && strings.Contains(p.body, "ratelimitd") {
					t.Errorf("%s: %d %s, want %d", path, p.code, p.body, c.code)
				}
			}
			if p := d.getAs("admin", "/healthz", c.host, c.token); p.code != 200 {
				t.Errorf("/healthz: %d %s", p.code, p.body)
			}
			if c.token == "" {
				if p := d.getAs("metrics", "/metrics", c.host, ""); p.code != c.code {
					t.Errorf("the port of metrics: %d %s, want %d", p.code, p.body, c.code)
				}
			}
			for _, page := range [][2]string{{"admin", "/metrics"}, {"admin", "/healthz"}, {"admin", "/rlconfig"}, {"metrics", "/metrics"}} {
				if p := elsewhere.getAs(page[0], page[1], c.host, c.token); p.code != 200 {
					t.Errorf("on another address, %s: %d %s", page, p.code, p.body)
				}
			}
		})
	}
}

// What a form of a web page may send has no effect, even with a token.
func TestFormsOfWebPagesHaveNoEffect(t *testing.T) {
	t.Parallel()
	d, f := startAdmin(t)
	const body = `{"puts":[{"assignment":{"domain":"api","entries":[{"key":"user","value":"x"}],"blocked":true}}]}`
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "text/plain; application/json"} {
		if p := d.askAdmin("POST", "/assignments", "run", body, "Content-Type", kind); p.code != 400 || !strings.Contains(p.body, "content-type") {
			t.Errorf("%q: %d %s", kind, p.code, p.body)
		}
	}
	if p := d.askAdmin("POST", "/assignments", "run", body, "Sec-Fetch-Site", "cross-site"); p.code != 403 {
		t.Errorf("from another site: %d %s", p.code, p.body)
	}
	if n := f.Table().Len(); n != 1 {
		t.Errorf("there are %d assignments", n)
	}
	if p := d.askAdmin("POST", "/assignments", "run", body, "Content-Type", "application/json; charset=utf-8"); p.code != 200 {
		t.Errorf("%d %s", p.code, p.body)
	}
}

// On an address that others reach nothing of the API is served unless it is known
// who calls.
func TestOnOtherAddressesCallersMustBeKnown(t *testing.T) {
	t.Parallel()
	public := func(o *server.Options) { o.Admin.Address = "0.0.0.0:0" }
	unknown := start(t, oneLimit, withAssignments(newAssignments(t)), public)
	for _, token := range []string{"", "run"} {
		wantEach(t, unknown, unknown.admin(nil), token, 0, codes.Unimplemented)
	}
	for _, path := range []string{"/domains", "/openapi.yaml", "/nothing", ""} {
		if p := unknown.askAdmin("GET", path, "", ""); p.code != 404 || !strings.Contains(p.body, "set admin.tokens_file, or admin.tls.client_ca") {
			t.Errorf("%s: %d %s", path, p.code, p.body)
		}
	}
	for _, path := range []string{"/rlconfig", "/metrics", "/healthz"} {
		if p := unknown.get("admin", path); p.code != 200 {
			t.Errorf("%s: %d", path, p.code)
		}
	}
	known, _ := startAdmin(t, public)
	for level, token := range []string{"", "view", "help", "run"} {
		wantEach(t, known, known.admin(nil), token, level, codes.Unauthenticated)
	}
}

// The API is not on the ports of callers.
func TestCallersPortsDoNotHaveTheAdminAPI(t *testing.T) {
	t.Parallel()
	d := start(t, oneLimit, withAssignments(newAssignments(t)))
	if _, err := adminv1.NewAdminServiceClient(d.conn).ListDomains(t.Context(), &adminv1.ListDomainsRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("gRPC: %v", err)
	}
	if p := d.get("http", "/admin/v1/domains"); p.code != 404 {
		t.Errorf("HTTP: %d %s", p.code, p.body)
	}
}

func TestTokensFilesAreReadAgainAndBadOnesAreNot(t *testing.T) {
	t.Parallel()
	members, live, path := withMembers(t, someMembers())
	d := start(t, oneLimit, members)
	for _, c := range []struct {
		text  string
		good  bool
		codes map[string]int
	}{
		{"- {name: x, role: viewer}\n", false, map[string]int{"view": 200, "run": 200}},
		{"", false, map[string]int{"view": 200}},
		{"- {name: new, role: viewer, sha256: " + sumOf("new") + "}\n", true, map[string]int{"view": 401, "new": 200}},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := live.Reload(); (err == nil) != c.good {
			t.Errorf("%q: %v", c.text, err)
		}
		for token, code := range c.codes {
			if p := d.askAdmin("GET", "/domains", token, ""); p.code != code {
				t.Errorf("after %q, with %q: %d %s, want %d", c.text, token, p.code, p.body, code)
			}
		}
	}
}

// A token that is taken back, or gets another role, ends what it watches, and says why.
func TestWatchesEndWithTheirTokens(t *testing.T) {
	t.Parallel()
	f := newAssignments(t)
	members, live, path := withMembers(t, someMembers())
	d := start(t, oneLimit, members, withAssignments(f))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stays, err := d.admin(nil).WatchAssignments(with(ctx, "run"), &adminv1.WatchAssignmentsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	gone, err := d.admin(nil).WatchAssignments(with(ctx, "view"), &adminv1.WatchAssignmentsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	lines := d.watchAs(ctx, "view")
	asynctest.Eventually(t, "three watch", func() bool { return f.watches.Load() == 3 })
	filetest.Write(t, filepath.Dir(path), filepath.Base(path), "- {name: operator-1, role: operator, sha256: "+sumOf("run")+"}\n")
	if err := live.Reload(); err != nil {
		t.Fatal(err)
	}
	f.block("x")
	if m, err := gone.Recv(); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "admin.tokens_file") {
		t.Errorf("over gRPC: %v, %v", m, err)
	}
	if text, err := io.ReadAll(lines); err != nil || !strings.HasPrefix(string(text), `{"error":"`) || !strings.Contains(string(text), "admin.tokens_file") {
		t.Errorf("in JSON: %s, %v", text, err)
	}
	if m, err := stays.Recv(); err != nil || m.GetRecord().GetEntries()[0].GetValue() != "x" {
		t.Errorf("the other's: %v, %v", m, err)
	}
	asynctest.Eventually(t, "one watches", func() bool { return f.watches.Load() == 1 })
}

// On a connection that is open a certificate is good for as long as it would be on another.
func TestOpenConnectionsEndWithTheirCertificates(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(d *daemon, caFile string, other []byte){
		"it has expired": func(d *daemon, _ string, _ []byte) {
			d.clock.Set(time.Now().Add(2 * time.Hour).UnixMicro())
		},
		"its CA is in the file no more": func(d *daemon, caFile string, other []byte) {
			filetest.Write(d.t, filepath.Dir(caFile), filepath.Base(caFile), string(other))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca, other := certtest.New(t, "ca"), certtest.New(t, "other")
			own := ca.IssueLoopback(t, "server")
			members, _, _ := withMembers(t, "- {name: desk, role: operator, certificate: dns:desk.corp}\n"+someMembers())
			f := newAssignments(t)
			caFile := filetest.Write(t, t.TempDir(), "ca.pem", string(ca.PEM))
			d := start(t, oneLimit, members, withAssignments(f), func(o *server.Options) {
				var err error
				if o.Admin.TLS, err = tlsfiles.ServerConfig(tlsfiles.Server{Cert: own.CertFile, Key: own.KeyFile, ClientCA: caFile}, o.Log); err != nil {
					t.Fatal(err)
				}
				o.Admin.TLS.Time = o.Now
			})
			d.clock.Set(time.Now().UnixMicro())
			c := clientTLS(t, ca, nil)
			leaf := ca.Issue(t, x509.Certificate{DNSNames: []string{"desk.corp"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}).TLS(t)
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &leaf, nil }
			client := d.admin(c)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			put := func(ctx context.Context) error {
				_, err := client.PutAssignments(ctx, &adminv1.PutAssignmentsRequest{Puts: []*adminv1.PutAssignment{{Assignment: &adminv1.Assignment{
					Domain: "api", Entries: []*ratelimitv1.Entry{{Key: "user", Value: "x"}}, Blocked: true,
				}}}})
				return err
			}
			if err := put(ctx); err != nil {
				t.Fatal(err)
			}
			watch, err := client.WatchAssignments(ctx, &adminv1.WatchAssignmentsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			asynctest.Eventually(t, "it watches", func() bool { return f.watches.Load() == 1 })
			h := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: c, MaxConnsPerHost: 1}}
			defer h.CloseIdleConnections()
			get := func(path string) (int, string) {
				t.Helper()
				response, err := h.Get("https://" + d.srv.Address("admin") + path)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				text, err := io.ReadAll(response.Body)
				if err != nil {
					t.Fatal(err)
				}
				return response.StatusCode, string(text)
			}
			if code, text := get("/rlconfig"); code != 200 {
				t.Fatalf("%d %s", code, text)
			}
			end(d, caFile, other.PEM)
			if code, text := get("/rlconfig"); code != 403 || !strings.Contains(text, "good no more") {
				t.Errorf("a page: %d %s", code, text)
			}
			if m, err := watch.Recv(); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "good no more") {
				t.Errorf("the watch: %v, %v", m, err)
			}
			// The first call ends the connection, and the handshake of the next one fails.
			for _, with := range []context.Context{ctx, with(ctx, "run")} {
				if err := put(with); status.Code(err) != codes.Unauthenticated && status.Code(err) != codes.Unavailable {
					t.Errorf("a change: %v", err)
				}
			}
			if n := len(f.recorded()); n != 1 {
				t.Errorf("there are %d records", n)
			}
		})
	}
}

func TestTheAdminPortHasTLSAndKnowsCertificates(t *testing.T) {
	t.Parallel()
	ca, stranger := certtest.New(t, "ca"), certtest.New(t, "stranger")
	own := ca.IssueLoopback(t, "server")
	members, _, _ := withMembers(t, "- {name: desk, role: operator, certificate: dns:desk.corp}\n"+someMembers())
	f := newAssignments(t)
	d := start(t, oneLimit, members, withAssignments(f), func(o *server.Options) {
		o.Admin.Address = "0.0.0.0:0"
		var err error
		if o.Admin.TLS, err = tlsfiles.ServerConfig(tlsfiles.Server{Cert: own.CertFile, Key: own.KeyFile, ClientCA: ca.File}, o.Log); err != nil {
			t.Fatal(err)
		}
	})
	_, port, _ := net.SplitHostPort(d.srv.Address("admin"))
	showing := func(signer *certtest.Authority, template x509.Certificate) *tls.Config {
		c := clientTLS(t, ca, nil)
		if signer != nil {
			leaf := signer.Issue(t, template).TLS(t)
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &leaf, nil }
		}
		c.ServerName = "127.0.0.1"
		return c
	}
	forClients := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	client := func(signer *certtest.Authority, names ...string) *tls.Config {
		return showing(signer, x509.Certificate{DNSNames: names, ExtKeyUsage: forClients})
	}
	put := &adminv1.PutAssignmentsRequest{Puts: []*adminv1.PutAssignment{{Assignment: &adminv1.Assignment{Domain: "api", Entries: []*ratelimitv1.Entry{{Key: "user", Value: "x"}}, Blocked: true}}}}
	for _, c := range []struct {
		name, token string
		tls         *tls.Config
		code        codes.Code
		pages       bool
	}{
		{"an operator's certificate", "", client(ca, "desk.corp"), codes.OK, true},
		{"another certificate", "", client(ca, "other.corp"), codes.PermissionDenied, true},
		{"another, and an operator's token", "run", client(ca, "other.corp"), codes.OK, true},
		{"an operator's, and another token", "guessed", client(ca, "desk.corp"), codes.Unauthenticated, true},
		{"a stranger's", "run", client(stranger, "desk.corp"), codes.Unavailable, false},
		{"none", "run", client(nil), codes.Unavailable, false},
		{"one that has expired", "run", showing(ca, x509.Certificate{DNSNames: []string{"desk.corp"}, ExtKeyUsage: forClients, NotAfter: time.Now().Add(-time.Minute)}), codes.Unavailable, false},
		{"one for servers", "run", showing(ca, x509.Certificate{DNSNames: []string{"desk.corp"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}), codes.Unavailable, false},
		{"one with the name only as its subject's", "", showing(ca, x509.Certificate{Subject: pkix.Name{CommonName: "desk.corp"}, ExtKeyUsage: forClients}), codes.PermissionDenied, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(with(t.Context(), c.token), patience)
			defer cancel()
			put.Puts[0].Assignment.Reason = c.name // what is assigned again without a change is not recorded
			if _, err := d.admin(c.tls).PutAssignments(ctx, put); status.Code(err) != c.code {
				t.Errorf("over gRPC: %v, want %s", err, c.code)
			}
			h := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: c.tls, ForceAttemptHTTP2: true}}
			defer h.CloseIdleConnections()
			for _, path := range []string{"/metrics", "/healthz", "/rlconfig"} {
				response, err := h.Get("https://127.0.0.1:" + port + path)
				if (err == nil) != c.pages {
					t.Errorf("%s: %v", path, err)
				}
				if err == nil {
					response.Body.Close()
				}
			}
		})
	}
	if all := f.recorded(); len(all) != 2 || all[1].By != "desk" || all[0].By != "operator-1" {
		t.Errorf("the records name %+v", all)
	}
}

// A caller that goes while records are sent to it leaves nobody who writes where its
// request was.
func TestWatchesMayLeaveWhileRecordsCome(t *testing.T) {
	t.Parallel()
	d, f := startAdmin(t)
	client := d.admin(nil)
	for i := range 100 {
		ctx, cancel := context.WithCancel(with(t.Context(), "view"))
		stream, err := client.WatchAssignments(ctx, &adminv1.WatchAssignmentsRequest{})
		if err == nil {
			_, err = stream.Header()
		}
		if err != nil {
			t.Fatal(err)
		}
		var changes sync.WaitGroup
		changes.Go(func() {
			for range 20 {
				c := blocking("kept")
				c.Assignment.Reason = strings.Repeat(string("ab"[i%2]), assign.MaxText)
				f.put(c)
			}
		})
		cancel()
		changes.Wait()
	}
	asynctest.Eventually(t, "the watches' end", func() bool { return f.watches.Load() == 0 })
	d.wantMetric("ratelimitd_panics_total", 0)
}

// Watches are bounded in number, those of one member too, each has a bounded buffer,
// and all end with the server.
func TestWatchesAreBoundedAndEnd(t *testing.T) {
	t.Parallel()
	five, _, _ := withMembers(t, someMembers()+
		"- {name: viewer-2, role: viewer, sha256: "+sumOf("look")+"}\n- {name: viewer-3, role: viewer, sha256: "+sumOf("see")+"}\n")
	d, f := startAdmin(t, five)
	client := d.admin(nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var streams []interface {
		Recv() (*adminv1.WatchAssignmentsResponse, error)
	}
	refused := func(token, word string) {
		t.Helper()
		one, err := client.WatchAssignments(with(t.Context(), token), &adminv1.WatchAssignmentsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := one.Recv(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), word) {
			t.Errorf("one too many: %v", err)
		}
		if p := d.askAdmin("GET", "/assignments/watch", token, ""); p.code != 429 || !strings.Contains(p.body, word) {
			t.Errorf("one too many in JSON: %d %s", p.code, p.body)
		}
	}
	for _, token := range []string{"view", "help", "run", "look"} {
		for range 16 {
			stream, err := client.WatchAssignments(with(ctx, token), &adminv1.WatchAssignmentsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Header(); err != nil {
				t.Fatal(err)
			}
			streams = append(streams, stream)
		}
		refused(token, "has 16 watches open")
	}
	refused("see", "64 watches are open")
	// None of them reads, so all end once their buffers are full.
	asynctest.Eventually(t, "the watches' end", func() bool {
		for i := range 100 {
			c := blocking("kept")
			c.Assignment.Reason = strings.Repeat(string("ab"[i%2]), assign.MaxText) // each is a change
			f.put(c)
		}
		return f.watches.Load() == 0
	})
	for _, stream := range streams {
		var err error
		for err == nil {
			_, err = stream.Recv()
		}
		// On a busy machine a write may take too long before its buffer is full.
		if code := status.Code(err); code != codes.ResourceExhausted && code != codes.Internal {
			t.Fatalf("a caller that does not keep up: %v", err)
		}
	}
	// What they held is free again.
	again, err := client.WatchAssignments(with(ctx, "view"), &adminv1.WatchAssignmentsRequest{})
	if err == nil {
		_, err = again.Header()
	}
	if err != nil {
		t.Fatal(err)
	}
	line := make(chan string, 1)
	go func() {
		r, _ := http.NewRequest("GET", "http://"+d.srv.Address("admin")+"/admin/v1/assignments/watch", nil)
		r.Header.Set("Authorization", "Bearer view")
		response, err := d.client.Do(r)
		if err != nil {
			line <- err.Error()
			return
		}
		defer response.Body.Close()
		last := ""
		for s := bufio.NewScanner(response.Body); s.Scan(); {
			last = s.Text()
		}
		line <- last
	}()
	asynctest.Eventually(t, "both watches", func() bool { return f.watches.Load() == 2 })
	d.stop <- 0
	if _, err := again.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("at the end: %v", err)
	}
	if got := <-line; got != `{"error":"the daemon stops"}` {
		t.Errorf("at the end in JSON: %s", got)
	}
	d.wait()
}

// A watch has no body: while one is unread it is not noticed that the caller has gone, and
// the watch would keep its place.
func TestWatchesHaveNoBodies(t *testing.T) {
	t.Parallel()
	d, f := startAdmin(t)
	for range 16 {
		conn := d.begin("GET", "/assignments/watch", "view", strings.Repeat("x", 10), 0)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != 400 {
			t.Errorf("with a body: %s", response.Status)
		}
		conn.Close()
	}
	asynctest.Eventually(t, "none watches", func() bool { return f.watches.Load() == 0 })
}

// A viewer, who may be anybody on the machine, may ask for reflection, whose calls
// have many messages. A call ends after 64 of them, and none is longer than 4 KiB, so that
// one holds 1 MiB at most, however much its caller sends.
func TestCallsOfTheAdminPortReadBoundedMessages(t *testing.T) {
	t.Parallel()
	d, _ := startAdmin(t)
	conn, err := grpc.NewClient(d.srv.Address("admin"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(with(t.Context(), "view"), patience)
	defer cancel()
	asked := func(messages int, r *reflectionpb.ServerReflectionRequest) (answers int, err error) {
		stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
		if err != nil {
			return 0, err
		}
		var sending sync.WaitGroup
		defer sending.Wait() // it reads r until the call has ended
		sending.Go(func() {
			for range messages {
				if stream.Send(r) != nil {
					return
				}
			}
		})
		for ; ; answers++ {
			if _, err := stream.Recv(); err != nil {
				return answers, err
			}
		}
	}
	list := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
	if answers, err := asked(10_000, list); answers != 64 || !errors.Is(err, io.EOF) {
		t.Errorf("%d of 10,000 were answered: %v", answers, err)
	}
	list.Host = strings.Repeat("x", 5<<10)
	if answers, err := asked(1, list); answers != 0 || err == nil || errors.Is(err, io.EOF) {
		t.Errorf("of a long message: %d answers, %v", answers, err)
	}
}
