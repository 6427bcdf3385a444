package adminapi_test

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
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/certtest"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	"github.com/ratelimitd/ratelimitd/internal/tlsfiles"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// getAs gets a page as one of a host, with a token if it is not empty.
func getAs(d *servertest.Daemon, port, path, host, token string) servertest.Page {
	d.T.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+d.Server.Address(port)+path, nil)
	if err != nil {
		d.T.Fatal(err)
	}
	r.Host = host
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return d.Do(r)
}

// watchAs watches assignments in JSON, and returns the lines.
func watchAs(ctx context.Context, d *servertest.Daemon, token string) io.Reader {
	d.T.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.Server.Address("admin")+"/admin/v1/assignments/watch", nil)
	if err != nil {
		d.T.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := d.Client.Do(r)
	if err != nil {
		d.T.Fatal(err)
	}
	d.T.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		d.T.Fatalf("the watch: %s", response.Status)
	}
	return response.Body
}

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
	{name: "PatchAssignments", call: func(ctx context.Context, c adminv1.AdminServiceClient) error {
		r, err := c.PatchAssignments(ctx, &adminv1.PatchAssignmentsRequest{Patches: []*adminv1.AssignmentPatch{{Assignment: &adminv1.Assignment{
			Domain: "api", Entries: []*ratelimitv1.Entry{{Key: "user", Value: "x"}}, Numbers: []*adminv1.AssignedNumbers{{Limit: "u", Requests: 6}},
			Until: timestamppb.New(servertest.Midnight.Add(time.Hour)),
		}}}})
		if err == nil && r.GetChanges()[0].GetError() != "" {
			err = errors.New(r.GetChanges()[0].GetError())
		}
		return err
	}, method: "PATCH", path: "/assignments", body: `{"patches":[{"assignment":{"domain":"api","entries":[{"key":"user","value":"x"}],"numbers":[{"limit":"u","requests":6}],"until":"2026-01-01T01:00:00Z"}}]}`, roles: 2},
	{name: "UndoAssignment", call: func(ctx context.Context, c adminv1.AdminServiceClient) error {
		_, err := c.UndoAssignment(ctx, &adminv1.UndoAssignmentRequest{Domain: "api", Entries: []*ratelimitv1.Entry{{Key: "user", Value: "kept"}}, DryRun: true})
		return err
	}, method: "POST", path: "/assignment/undo", body: `{"domain":"api","entries":[{"key":"user","value":"kept"}],"dry_run":true}`, roles: 1},
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
func startAdmin(t testing.TB, change ...func(*server.Options)) (*servertest.Daemon, *servertest.Assignments) {
	t.Helper()
	f := servertest.NewAssignments(t)
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	d := servertest.Start(t, servertest.OneLimit, append([]func(*server.Options){members, servertest.WithAssignments(f)}, change...)...)
	if p := d.AskAdmin("PUT", "/assignment?domain=api&entry=user=kept", "run", `{"blocked":true}`); p.Code != 201 {
		t.Fatalf("%d %s", p.Code, p.Body)
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
func wantEach(t *testing.T, d *servertest.Daemon, client adminv1.AdminServiceClient, token string, level int, refused codes.Code) {
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
		ctx, cancel := context.WithTimeout(servertest.WithToken(t.Context(), token), servertest.Patience)
		if err := m.call(ctx, client); status.Code(err) != want {
			t.Errorf("%s with the token %q: %v, want %s", m.name, token, err, want)
		}
		cancel()
		if m.method == "" {
			continue
		}
		p := d.AskAdmin(m.method, m.path, token, m.body)
		code := httpCodes[want]
		if level == 0 && refused == codes.Unimplemented {
			code = 404
		}
		if p.Code != code || p.Header.Get("Content-Type") != "application/json" || code != 200 && !strings.HasPrefix(p.Body, `{"error":"`) {
			t.Errorf("%s %s with the token %q: %d %s, want %d", m.method, m.path, token, p.Code, p.Body, code)
		}
	}
}

func TestEachRoleMayCallItsMethods(t *testing.T) {
	t.Parallel()
	d, _ := startAdmin(t)
	client := d.Admin(nil)
	for level, token := range []string{"", "view", "help", "run"} {
		wantEach(t, d, client, token, level, codes.Unauthenticated)
	}
}

func TestGuessedTokensAreRefusedAndCounted(t *testing.T) {
	t.Parallel()
	d, _ := startAdmin(t)
	for i := range 12 {
		p, want := d.AskAdmin("GET", "/domains", "guessed-token", ""), 401
		if i >= 10 {
			want = 429
		}
		if p.Code != want || strings.Contains(p.Body, "guessed-token") || want == 401 && p.Header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("guess %d: %d %v %s", i, p.Code, p.Header, p.Body)
		}
	}
	if p := d.AskAdmin("GET", "/domains", "view", ""); p.Code != 429 {
		t.Errorf("a good token from the same address: %d %s", p.Code, p.Body)
	}
	// Others do not suffer.
	other := &http.Client{Timeout: servertest.Patience, Transport: &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}}
	defer other.CloseIdleConnections()
	r, err := http.NewRequest("GET", "http://"+d.Server.Address("admin")+"/admin/v1/domains", nil)
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
	d.Clock.Set(d.Clock.Micros() + (6 * time.Second).Microseconds())
	if p := d.AskAdmin("GET", "/domains", "view", ""); p.Code != 200 {
		t.Errorf("after 6 s: %d %s", p.Code, p.Body)
	}
	d.WantMetrics(map[string]float64{
		`ratelimitd_admin_requests_total{code="Unauthenticated",method="ListDomains"}`:   10,
		`ratelimitd_admin_requests_total{code="ResourceExhausted",method="ListDomains"}`: 3,
		`ratelimitd_admin_requests_total{code="OK",method="ListDomains"}`:                2,
	})
	for _, secret := range []string{"guessed-token", servertest.SumOf("guessed-token"), servertest.SumOf("view"), "Bearer view"} {
		if lines := d.Log.Lines(secret); len(lines) > 0 {
			t.Errorf("the log has %s: %s", secret, lines)
		}
		if strings.Contains(d.Get("admin", "/rlconfig").Body+d.Get("admin", "/metrics").Body, secret) {
			t.Errorf("a page has %s", secret)
		}
	}
	if lines := d.Log.Lines("admin request refused", "code=Unauthenticated", "method=ListDomains", "from=127.0.0.1"); len(lines) == 0 {
		t.Error("the log has nothing of it")
	}
}

func TestOnLoopbackEverybodyViewsAndExplains(t *testing.T) {
	t.Parallel()
	f := servertest.NewAssignments(t)
	d := servertest.Start(t, servertest.OneLimit, servertest.WithAssignments(f))
	f.Block("kept")
	wantEach(t, d, d.Admin(nil), "", localLevel, codes.OK)
}

// Pages of the web, and proxies for others, do not count as callers on this machine.
func TestOnLoopbackRequestsOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit, servertest.WithAssignments(servertest.NewAssignments(t)))
	address := d.Server.Address("admin")
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
			if p := d.AskAdmin("GET", "/domains", "", "", c.headers...); p.Code != c.code {
				t.Errorf("%d %s, want %d", p.Code, p.Body, c.code)
			} else if p.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("it lets other origins read: %v", p.Header)
			}
		})
	}
	for _, header := range []string{
		"Via", "CDN-Loop", "X-Real-IP", "CF-Connecting-IP", "CF-Ray", "True-Client-IP", "Fastly-Client-IP", "Fly-Client-IP", "X-Client-IP", "X-Cluster-Client-IP",
		"X-Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Client-Cert", "X-Original-Forwarded-For", "X-Envoy-External-Address", "X-Azure-ClientIP", "X-AppEngine-User-IP",
	} {
		if p := d.AskAdmin("GET", "/domains", "", "", header, "198.51.100.7"); p.Code != 401 || !strings.Contains(p.Body, "came through a proxy (header "+strings.ToLower(header)+")") {
			t.Errorf("with %s: %d %s", header, p.Code, p.Body)
		}
	}
	// A browser asks before it sends what a form cannot.
	if p := d.AskAdmin("OPTIONS", "/assignments", "", "", "Origin", "http://"+address, "Access-Control-Request-Method", "POST"); p.Code != 405 {
		t.Errorf("a browser's question: %d %s", p.Code, p.Body)
	}
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "origin", "https://evil.example"), servertest.Patience)
	defer cancel()
	if _, err := d.Admin(nil).ListDomains(ctx, &adminv1.ListDomainsRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("over gRPC: %v", err)
	}
}

// A page of the web whose name leads here (DNS rebinding) reads none of the pages that
// want no credentials. Whoever names this machine does, and so do scrapers.
func TestOnLoopbackPagesAreForRequestsToThisMachine(t *testing.T) {
	t.Parallel()
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	loopback := func(o *server.Options) {
		o.Admin.Pprof, o.Admin.MetricsAddress, o.Admin.MetricsPath = true, "127.0.0.1:0", "/metrics"
	}
	d := servertest.Start(t, servertest.OneLimit, members, loopback)
	_, port, _ := net.SplitHostPort(d.Server.Address("admin"))
	elsewhere := servertest.Start(t, servertest.OneLimit, func(o *server.Options) {
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
				if p := getAs(d, "admin", path, c.host, c.token); p.Code != c.code || c.code == 403 && strings.Contains(p.Body, "ratelimitd") {
					t.Errorf("%s: %d %s, want %d", path, p.Code, p.Body, c.code)
				}
			}
			if p := getAs(d, "admin", "/healthz", c.host, c.token); p.Code != 200 {
				t.Errorf("/healthz: %d %s", p.Code, p.Body)
			}
			if c.token == "" {
				if p := getAs(d, "metrics", "/metrics", c.host, ""); p.Code != c.code {
					t.Errorf("the port of metrics: %d %s, want %d", p.Code, p.Body, c.code)
				}
			}
			for _, page := range [][2]string{{"admin", "/metrics"}, {"admin", "/healthz"}, {"admin", "/rlconfig"}, {"metrics", "/metrics"}} {
				if p := getAs(elsewhere, page[0], page[1], c.host, c.token); p.Code != 200 {
					t.Errorf("on another address, %s: %d %s", page, p.Code, p.Body)
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
		if p := d.AskAdmin("POST", "/assignments", "run", body, "Content-Type", kind); p.Code != 400 || !strings.Contains(p.Body, "content-type") {
			t.Errorf("%q: %d %s", kind, p.Code, p.Body)
		}
	}
	if p := d.AskAdmin("POST", "/assignments", "run", body, "Sec-Fetch-Site", "cross-site"); p.Code != 403 {
		t.Errorf("from another site: %d %s", p.Code, p.Body)
	}
	if n := f.Table().Len(); n != 1 {
		t.Errorf("there are %d assignments", n)
	}
	if p := d.AskAdmin("POST", "/assignments", "run", body, "Content-Type", "application/json; charset=utf-8"); p.Code != 200 {
		t.Errorf("%d %s", p.Code, p.Body)
	}
}

// On an address that others reach nothing of the API is served unless it is known
// who calls.
func TestOnOtherAddressesCallersMustBeKnown(t *testing.T) {
	t.Parallel()
	public := func(o *server.Options) { o.Admin.Address = "0.0.0.0:0" }
	unknown := servertest.Start(t, servertest.OneLimit, servertest.WithAssignments(servertest.NewAssignments(t)), public)
	for _, token := range []string{"", "run"} {
		wantEach(t, unknown, unknown.Admin(nil), token, 0, codes.Unimplemented)
	}
	for _, path := range []string{"/domains", "/openapi.yaml", "/nothing", ""} {
		if p := unknown.AskAdmin("GET", path, "", ""); p.Code != 404 || !strings.Contains(p.Body, "set admin.tokens_file, or admin.tls.client_ca") {
			t.Errorf("%s: %d %s", path, p.Code, p.Body)
		}
	}
	for _, path := range []string{"/rlconfig", "/metrics", "/healthz"} {
		if p := unknown.Get("admin", path); p.Code != 200 {
			t.Errorf("%s: %d", path, p.Code)
		}
	}
	known, _ := startAdmin(t, public)
	if p := known.AskAdmin("GET", "/domains", "", ""); p.Code != 401 {
		t.Errorf("without a token: %d %s", p.Code, p.Body)
	}
}

// The API is not on the ports of callers.
func TestCallersPortsDoNotHaveTheAdminAPI(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit, servertest.WithAssignments(servertest.NewAssignments(t)))
	if _, err := adminv1.NewAdminServiceClient(d.Conn).ListDomains(t.Context(), &adminv1.ListDomainsRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("gRPC: %v", err)
	}
	if p := d.Get("http", "/admin/v1/domains"); p.Code != 404 {
		t.Errorf("HTTP: %d %s", p.Code, p.Body)
	}
}

func TestTokensFilesAreReadAgainAndBadOnesAreNot(t *testing.T) {
	t.Parallel()
	members, live, path := servertest.WithMembers(t, servertest.SomeMembers())
	d := servertest.Start(t, servertest.OneLimit, members)
	for _, c := range []struct {
		text  string
		good  bool
		codes map[string]int
	}{
		{"- {name: x, role: viewer}\n", false, map[string]int{"view": 200, "run": 200}},
		{"", false, map[string]int{"view": 200}},
		{"- {name: new, role: viewer, sha256: " + servertest.SumOf("new") + "}\n", true, map[string]int{"view": 401, "new": 200}},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := live.Reload(); (err == nil) != c.good {
			t.Errorf("%q: %v", c.text, err)
		}
		for token, code := range c.codes {
			if p := d.AskAdmin("GET", "/domains", token, ""); p.Code != code {
				t.Errorf("after %q, with %q: %d %s, want %d", c.text, token, p.Code, p.Body, code)
			}
		}
	}
}

// A token that is taken back, or gets another role, ends what it watches, and says why.
func TestWatchesEndWithTheirTokens(t *testing.T) {
	t.Parallel()
	f := servertest.NewAssignments(t)
	members, live, path := servertest.WithMembers(t, servertest.SomeMembers())
	d := servertest.Start(t, servertest.OneLimit, members, servertest.WithAssignments(f))
	ctx, cancel := context.WithTimeout(t.Context(), servertest.Patience)
	defer cancel()
	stays, err := d.Admin(nil).WatchAssignments(servertest.WithToken(ctx, "run"), &adminv1.WatchAssignmentsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	gone, err := d.Admin(nil).WatchAssignments(servertest.WithToken(ctx, "view"), &adminv1.WatchAssignmentsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	lines := watchAs(ctx, d, "view")
	asynctest.Eventually(t, "three watch", func() bool { return f.Watches.Load() == 3 })
	filetest.Write(t, filepath.Dir(path), filepath.Base(path), "- {name: operator-1, role: operator, sha256: "+servertest.SumOf("run")+"}\n")
	if err := live.Reload(); err != nil {
		t.Fatal(err)
	}
	f.Block("x")
	if m, err := gone.Recv(); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "admin.tokens_file") {
		t.Errorf("over gRPC: %v, %v", m, err)
	}
	if text, err := io.ReadAll(lines); err != nil || !strings.HasPrefix(string(text), `{"error":"`) || !strings.Contains(string(text), "admin.tokens_file") {
		t.Errorf("in JSON: %s, %v", text, err)
	}
	if m, err := stays.Recv(); err != nil || m.GetRecord().GetEntries()[0].GetValue() != "x" {
		t.Errorf("the other's: %v, %v", m, err)
	}
	asynctest.Eventually(t, "one watches", func() bool { return f.Watches.Load() == 1 })
}

// On a connection that is open a certificate is good for as long as it would be on another.
func TestOpenConnectionsEndWithTheirCertificates(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(d *servertest.Daemon, caFile string, other []byte){
		"it has expired": func(d *servertest.Daemon, _ string, _ []byte) {
			d.Clock.Set(time.Now().Add(2 * time.Hour).UnixMicro())
		},
		"its CA is in the file no more": func(d *servertest.Daemon, caFile string, other []byte) {
			filetest.Write(d.T, filepath.Dir(caFile), filepath.Base(caFile), string(other))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca, other := certtest.New(t, "ca"), certtest.New(t, "other")
			own := ca.IssueLoopback(t, "server")
			members, _, _ := servertest.WithMembers(t, "- {name: desk, role: operator, certificate: dns:desk.corp}\n"+servertest.SomeMembers())
			f := servertest.NewAssignments(t)
			caFile := filetest.Write(t, t.TempDir(), "ca.pem", string(ca.PEM))
			d := servertest.Start(t, servertest.OneLimit, members, servertest.WithAssignments(f), func(o *server.Options) {
				var err error
				if o.Admin.TLS, err = tlsfiles.ServerConfig(tlsfiles.Server{Cert: own.CertFile, Key: own.KeyFile, ClientCA: caFile}, o.Log); err != nil {
					t.Fatal(err)
				}
				o.Admin.TLS.Time = o.Now
			})
			d.Clock.Set(time.Now().UnixMicro())
			c := servertest.ClientTLS(t, ca, nil)
			leaf := ca.Issue(t, x509.Certificate{DNSNames: []string{"desk.corp"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}).TLS(t)
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &leaf, nil }
			client := d.Admin(c)
			ctx, cancel := context.WithTimeout(t.Context(), servertest.Patience)
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
			asynctest.Eventually(t, "it watches", func() bool { return f.Watches.Load() == 1 })
			h := &http.Client{Timeout: servertest.Patience, Transport: &http.Transport{TLSClientConfig: c, MaxConnsPerHost: 1}}
			defer h.CloseIdleConnections()
			get := func(path string) (int, string) {
				t.Helper()
				response, err := h.Get("https://" + d.Server.Address("admin") + path)
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
			if code, text := get("/rlconfig"); code != 403 || !strings.Contains(text, "no longer valid") {
				t.Errorf("a page: %d %s", code, text)
			}
			if m, err := watch.Recv(); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "no longer valid") {
				t.Errorf("the watch: %v, %v", m, err)
			}
			// The first call ends the connection, and the handshake of the next one fails.
			for _, with := range []context.Context{ctx, servertest.WithToken(ctx, "run")} {
				if err := put(with); status.Code(err) != codes.Unauthenticated && status.Code(err) != codes.Unavailable {
					t.Errorf("a change: %v", err)
				}
			}
			if n := len(f.Recorded()); n != 1 {
				t.Errorf("there are %d records", n)
			}
		})
	}
}

func TestTheAdminPortHasTLSAndKnowsCertificates(t *testing.T) {
	t.Parallel()
	ca, stranger := certtest.New(t, "ca"), certtest.New(t, "stranger")
	own := ca.IssueLoopback(t, "server")
	members, _, _ := servertest.WithMembers(t, "- {name: desk, role: operator, certificate: dns:desk.corp}\n"+servertest.SomeMembers())
	f := servertest.NewAssignments(t)
	d := servertest.Start(t, servertest.OneLimit, members, servertest.WithAssignments(f), func(o *server.Options) {
		o.Admin.Address = "0.0.0.0:0"
		var err error
		if o.Admin.TLS, err = tlsfiles.ServerConfig(tlsfiles.Server{Cert: own.CertFile, Key: own.KeyFile, ClientCA: ca.File}, o.Log); err != nil {
			t.Fatal(err)
		}
	})
	_, port, _ := net.SplitHostPort(d.Server.Address("admin"))
	showing := func(signer *certtest.Authority, template x509.Certificate) *tls.Config {
		c := servertest.ClientTLS(t, ca, nil)
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
			ctx, cancel := context.WithTimeout(servertest.WithToken(t.Context(), c.token), servertest.Patience)
			defer cancel()
			put.Puts[0].Assignment.Reason = c.name // what is assigned again without a change is not recorded
			if _, err := d.Admin(c.tls).PutAssignments(ctx, put); status.Code(err) != c.code {
				t.Errorf("over gRPC: %v, want %s", err, c.code)
			}
			h := &http.Client{Timeout: servertest.Patience, Transport: &http.Transport{TLSClientConfig: c.tls, ForceAttemptHTTP2: true}}
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
	if all := f.Recorded(); len(all) != 2 || all[1].By != "desk" || all[0].By != "operator-1" {
		t.Errorf("the records name %+v", all)
	}
}

// A caller that goes while records are sent to it leaves nobody who writes where its
// request was.
func TestWatchesMayLeaveWhileRecordsCome(t *testing.T) {
	t.Parallel()
	d, f := startAdmin(t)
	client := d.Admin(nil)
	for i := range 100 {
		ctx, cancel := context.WithCancel(servertest.WithToken(t.Context(), "view"))
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
				c := servertest.Blocking("kept")
				c.Set[0].Reason = strings.Repeat(string("ab"[i%2]), assign.MaxText)
				f.Put(c)
			}
		})
		cancel()
		changes.Wait()
	}
	asynctest.Eventually(t, "the watches' end", func() bool { return f.Watches.Load() == 0 })
	d.WantMetric("ratelimitd_panics_total", 0)
}

// Watches are bounded in number, those of one member too, each has a bounded buffer,
// and all end with the server.
func TestWatchesAreBoundedAndEnd(t *testing.T) {
	t.Parallel()
	five, _, _ := servertest.WithMembers(t, servertest.SomeMembers()+
		"- {name: viewer-2, role: viewer, sha256: "+servertest.SumOf("look")+"}\n- {name: viewer-3, role: viewer, sha256: "+servertest.SumOf("see")+"}\n")
	d, f := startAdmin(t, five)
	client := d.Admin(nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var streams []interface {
		Recv() (*adminv1.WatchAssignmentsResponse, error)
	}
	refused := func(token, word string) {
		t.Helper()
		one, err := client.WatchAssignments(servertest.WithToken(t.Context(), token), &adminv1.WatchAssignmentsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := one.Recv(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), word) {
			t.Errorf("one too many: %v", err)
		}
		if p := d.AskAdmin("GET", "/assignments/watch", token, ""); p.Code != 429 || !strings.Contains(p.Body, word) {
			t.Errorf("one too many in JSON: %d %s", p.Code, p.Body)
		}
	}
	for _, token := range []string{"view", "help", "run", "look"} {
		for range 16 {
			stream, err := client.WatchAssignments(servertest.WithToken(ctx, token), &adminv1.WatchAssignmentsRequest{})
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
			c := servertest.Blocking("kept")
			c.Set[0].Reason = strings.Repeat(string("ab"[i%2]), assign.MaxText) // each is a change
			f.Put(c)
		}
		return f.Watches.Load() == 0
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
	again, err := client.WatchAssignments(servertest.WithToken(ctx, "view"), &adminv1.WatchAssignmentsRequest{})
	if err == nil {
		_, err = again.Header()
	}
	if err != nil {
		t.Fatal(err)
	}
	line := make(chan string, 1)
	go func() {
		r, _ := http.NewRequest("GET", "http://"+d.Server.Address("admin")+"/admin/v1/assignments/watch", nil)
		r.Header.Set("Authorization", "Bearer view")
		response, err := d.Client.Do(r)
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
	asynctest.Eventually(t, "both watches", func() bool { return f.Watches.Load() == 2 })
	d.Stop <- 0
	if _, err := again.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("at the end: %v", err)
	}
	if got := <-line; got != `{"error":"the daemon stops"}` {
		t.Errorf("at the end in JSON: %s", got)
	}
	d.Wait()
}

// A watch has no body: while one is unread it is not noticed that the caller has gone, and
// the watch would keep its place.
func TestWatchesHaveNoBodies(t *testing.T) {
	t.Parallel()
	d, f := startAdmin(t)
	for range 16 {
		conn := begin(d, "GET", "/assignments/watch", "view", strings.Repeat("x", 10), 0)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != 400 {
			t.Errorf("with a body: %s", response.Status)
		}
		conn.Close()
	}
	asynctest.Eventually(t, "none watches", func() bool { return f.Watches.Load() == 0 })
}

// A viewer, who may be anybody on the machine, may ask for reflection, whose calls
// have many messages. A call ends after 64 of them, and none is longer than 4 KiB, so that
// one holds 1 MiB at most, however much its caller sends.
func TestCallsOfTheAdminPortReadBoundedMessages(t *testing.T) {
	t.Parallel()
	d, _ := startAdmin(t)
	conn, err := grpc.NewClient(d.Server.Address("admin"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(servertest.WithToken(t.Context(), "view"), servertest.Patience)
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
