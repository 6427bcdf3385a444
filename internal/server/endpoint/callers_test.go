package endpoint_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/certtest"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	"github.com/ratelimitd/ratelimitd/internal/tlsfiles"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// withCallers gives a server a callers file, and returns the file's path.
func withCallers(t testing.TB, text string) (func(*server.Options), *access.LiveCallers, string) {
	t.Helper()
	path := filetest.Write(t, t.TempDir(), "callers.yaml", text)
	live := access.NewLiveCallers(path, slog.New(slog.DiscardHandler))
	if err := live.Reload(); err != nil {
		t.Fatal(err)
	}
	return func(o *server.Options) { o.Requests.Callers = live }, live, path
}

func someCallers() string {
	return "- {name: shop, sha256: " + servertest.SumOf("shop's") + ", domains: [api], may: [take, give_back]}\n" +
		"- {name: desk, sha256: " + servertest.SumOf("desk's") + ", domains: ['*'], may: [take, refund, numbers]}\n" +
		"- {name: other, sha256: " + servertest.SumOf("other's") + ", domains: [other]}\n" +
		"- {name: proxy, certificate: ip:127.0.0.1, domains: [api]}\n"
}

// authOfX is a file for forward auth whose endpoint n asks about the user x.
const authOfX = "endpoints:\n- {name: n, proxy: caddy, domain: api, descriptors: [{entries: [{key: user, value: x}]}]}\n"

// All ways to ask give the same answer about each caller.
func TestCallersAreHeldToTheirRights(t *testing.T) {
	t.Parallel()
	change, _, _ := withCallers(t, someCallers())
	auth := servertest.WithAuth(t, authOfX)
	d := servertest.Start(t, strings.ReplaceAll(servertest.OneLimit, "5", "1000"), change, auth)
	post := func(path, header string, body string) func(context.Context, string) codes.Code {
		return func(ctx context.Context, token string) codes.Code {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.Server.Address("http")+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if token != "" {
				r.Header.Set(header, "Bearer "+token)
			}
			response, err := d.Client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			switch response.StatusCode {
			case 401:
				return codes.Unauthenticated
			case 403:
				return codes.PermissionDenied
			case 500: // forward auth, whose proxies would take 401 for a denial
				return codes.Aborted
			case 200:
				return codes.OK
			}
			return codes.Unknown
		}
	}
	for _, c := range []struct {
		name string
		ask  func(ctx context.Context, token string) codes.Code
		// want has the codes for no credentials, another token, shop, desk and other.
		want [5]codes.Code
	}{
		{"Envoy's RPC", func(ctx context.Context, token string) codes.Code {
			_, err := d.RLS.ShouldRateLimit(servertest.WithToken(ctx, token), servertest.Request("api", 1, "user=x"))
			return status.Code(err)
		}, [5]codes.Code{codes.Unauthenticated, codes.Unauthenticated, codes.OK, codes.OK, codes.PermissionDenied}},
		{"a refund", func(ctx context.Context, token string) codes.Code {
			r := servertest.Request("api", 1, "user=x")
			r.Descriptors[0].IsNegativeHits = true
			_, err := d.RLS.ShouldRateLimit(servertest.WithToken(ctx, token), r)
			return status.Code(err)
		}, [5]codes.Code{codes.Unauthenticated, codes.Unauthenticated, codes.PermissionDenied, codes.OK, codes.PermissionDenied}},
		{"a limit of its own", func(ctx context.Context, token string) codes.Code {
			_, err := d.RLS.ShouldRateLimit(servertest.WithToken(ctx, token), servertest.Overriding(t, 1, "user=x", "5/HOUR"))
			return status.Code(err)
		}, [5]codes.Code{codes.Unauthenticated, codes.Unauthenticated, codes.PermissionDenied, codes.OK, codes.PermissionDenied}},
		{"numbers of its own", func(ctx context.Context, token string) codes.Code {
			r := servertest.Taking("user=x")
			r.Descriptors[0].Numbers = &ratelimitv1.Numbers{Requests: 5, Period: durationpb.New(time.Hour)}
			_, err := d.API().Take(servertest.WithToken(ctx, token), r)
			return status.Code(err)
		}, [5]codes.Code{codes.Unauthenticated, codes.Unauthenticated, codes.PermissionDenied, codes.OK, codes.PermissionDenied}},
		{"Take", func(ctx context.Context, token string) codes.Code {
			_, err := d.API().Take(servertest.WithToken(ctx, token), servertest.Taking("user=x"))
			return status.Code(err)
		}, [5]codes.Code{codes.Unauthenticated, codes.Unauthenticated, codes.OK, codes.OK, codes.PermissionDenied}},
		{"TakeMany", func(ctx context.Context, token string) codes.Code {
			r, err := d.API().TakeMany(servertest.WithToken(ctx, token), &ratelimitv1.TakeManyRequest{Takes: []*ratelimitv1.TakeRequest{servertest.Taking("user=x")}})
			if err != nil {
				return status.Code(err)
			}
			return codes.Code(r.GetResults()[0].GetError().GetCode())
		}, [5]codes.Code{codes.Unauthenticated, codes.Unauthenticated, codes.OK, codes.OK, codes.PermissionDenied}},
		{"TakeStream", func(ctx context.Context, token string) codes.Code {
			stream, err := d.API().TakeStream(servertest.WithToken(ctx, token))
			if err == nil {
				err = stream.Send(&ratelimitv1.TakeStreamRequest{Takes: []*ratelimitv1.NumberedTake{{Number: 1, Take: servertest.Taking("user=x")}}})
			}
			if err != nil {
				return status.Code(err)
			}
			answer, err := stream.Recv()
			if err != nil {
				return status.Code(err)
			}
			return codes.Code(answer.GetResults()[0].GetResult().GetError().GetCode())
		}, [5]codes.Code{codes.Unauthenticated, codes.Unauthenticated, codes.OK, codes.OK, codes.PermissionDenied}},
		{"GiveBack", func(ctx context.Context, token string) codes.Code {
			_, err := d.API().GiveBack(servertest.WithToken(ctx, token), &ratelimitv1.GiveBackRequest{Take: servertest.Taking("user=x"), TakenAt: []int64{0}})
			return status.Code(err)
		}, [5]codes.Code{codes.Unauthenticated, codes.Unauthenticated, codes.OK, codes.PermissionDenied, codes.PermissionDenied}},
		{"POST /json", post("/json", "Authorization", servertest.BodyX),
			[5]codes.Code{codes.Unauthenticated, codes.Unauthenticated, codes.OK, codes.OK, codes.PermissionDenied}},
		{"POST /v1/take", post("/v1/take", "Authorization", `{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"x"}]}]}`),
			[5]codes.Code{codes.Unauthenticated, codes.Unauthenticated, codes.OK, codes.OK, codes.PermissionDenied}},
		{"forward auth", post("/auth/n", "Ratelimitd-Authorization", ""),
			[5]codes.Code{codes.Aborted, codes.Aborted, codes.OK, codes.OK, codes.Aborted}},
		{"forward auth with its client's token", post("/auth/n", "Authorization", ""),
			[5]codes.Code{codes.Aborted, codes.Aborted, codes.Aborted, codes.Aborted, codes.Aborted}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, token := range []string{"", "guessed", "shop's", "desk's", "other's"} {
				ctx, cancel := context.WithTimeout(t.Context(), servertest.Patience)
				if got := c.ask(ctx, token); got != c.want[i] {
					t.Errorf("with the token %q: %s, want %s", token, got, c.want[i])
				}
				cancel()
			}
		})
	}
	if got := d.Check(""); got != "SERVING" {
		t.Errorf("health: %s", got)
	}
	if lines := d.Log.Lines("guessed"); len(lines) > 0 {
		t.Errorf("the log has a token: %s", lines)
	}
	d.WantMetric(`ratelimitd_requests_total{api="grpc",code="Unauthenticated",outcome="error"}`, 6)
}

func TestCallersAreKnownByCertificates(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t, "ca")
	change, live, path := withCallers(t, someCallers())
	own := ca.IssueLoopback(t, "server")
	d := servertest.Run(t, servertest.OneLimit, change, func(o *server.Options) {
		for _, c := range []**tls.Config{&o.GRPC.TLS, &o.HTTP.TLS} {
			var err error
			if *c, err = tlsfiles.ServerConfig(tlsfiles.Server{Cert: own.CertFile, Key: own.KeyFile, ClientCA: ca.File}, o.Log); err != nil {
				t.Fatal(err)
			}
		}
	})
	d.Dial(servertest.WithTLS(t, ca, ca))
	asynctest.Eventually(t, "SERVING", func() bool { return d.Check("") == "SERVING" })
	client := &http.Client{Timeout: servertest.Patience, Transport: &http.Transport{TLSClientConfig: servertest.ClientTLS(t, ca, ca), ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	want := func(code codes.Code, httpCode int) {
		t.Helper()
		if _, err := d.Try(servertest.Request("api", 1, "user=x")); status.Code(err) != code {
			t.Errorf("over gRPC: %v, want %s", err, code)
		}
		response, err := client.Post("https://"+d.Server.Address("http")+"/json", "application/json", strings.NewReader(servertest.BodyX))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != httpCode {
			t.Errorf("over HTTP: %s, want %d", response.Status, httpCode)
		}
	}
	want(codes.OK, 200)
	// The file changes, and the connections stay.
	if err := os.WriteFile(path, []byte("[]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := live.Reload(); err != nil {
		t.Fatal(err)
	}
	want(codes.Unauthenticated, 401)
}
