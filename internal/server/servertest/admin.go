package servertest

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// SomeMembers is a file with a viewer, a supporter and an operator, whose tokens are
// view, help and run.
func SomeMembers() string {
	return "- {name: viewer-1, role: viewer, sha256: " + SumOf("view") + "}\n" +
		"- {name: support-1, role: support, sha256: " + SumOf("help") + "}\n" +
		"- {name: operator-1, role: operator, sha256: " + SumOf("run") + "}\n"
}

// WithMembers makes a server know the callers of the admin API by a file. It also returns
// what is in force of the file, and its path.
func WithMembers(t testing.TB, text string) (func(*server.Options), *access.LiveMembers, string) {
	t.Helper()
	path := filetest.Write(t, t.TempDir(), "tokens.yaml", text)
	live := access.NewLiveMembers(path, slog.New(slog.DiscardHandler))
	if err := live.Reload(); err != nil {
		t.Fatal(err)
	}
	return func(o *server.Options) { o.Admin.Members = live }, live, path
}

// Admin returns a client of the admin API, with TLS if it is given any.
func (d *Daemon) Admin(c *tls.Config) adminv1.AdminServiceClient {
	d.T.Helper()
	security := insecure.NewCredentials()
	if c != nil {
		security = credentials.NewTLS(c)
	}
	conn, err := grpc.NewClient(d.Server.Address("admin"), grpc.WithTransportCredentials(security))
	if err != nil {
		d.T.Fatal(err)
	}
	d.T.Cleanup(func() { conn.Close() })
	return adminv1.NewAdminServiceClient(conn)
}

// AskAdmin asks the admin API in JSON. headers are names and values.
func (d *Daemon) AskAdmin(method, path, token, body string, headers ...string) Page {
	d.T.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	r, err := http.NewRequest(method, "http://"+d.Server.Address("admin")+"/admin/v1"+path, in)
	if err != nil {
		d.T.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	return d.Do(r)
}
