package httplimit_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/netip"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/httplimit"
)

// limiter is made as in the first example.
var limiter *client.Client

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") })

func Example() {
	limiter, err := client.New("ratelimitd:8081", client.OnFailure(client.FailAllow()))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	limit, err := httplimit.New(limiter, httplimit.Options{
		Domain:      "api",
		Descriptors: []httplimit.Descriptor{httplimit.By(httplimit.Header("user", "X-User"))},
	})
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/", limit(hello))
}

func ExampleNew() {
	limit, err := httplimit.New(limiter, httplimit.Options{
		Domain: "api",
		// Each address has a limit, and so has each user on each route.
		Descriptors: []httplimit.Descriptor{
			httplimit.By(httplimit.ClientAddress("ip", netip.MustParsePrefix("10.0.0.0/8"))), // our proxies
			httplimit.By(httplimit.Header("user", "X-User"), httplimit.Route("route")),
		},
		OnMissing: httplimit.Omit, // requests without X-User are limited by their address only
		Headers:   httplimit.IETF,
		OnDenied: func(w http.ResponseWriter, _ *http.Request, _ httplimit.Verdict) {
			http.Error(w, "slow down", http.StatusTooManyRequests)
		},
		// While ratelimitd is away, this process limits by itself.
		OnFailure: client.FailLocal(client.Limit{Algorithm: client.TokenBucket, Requests: 10, Period: time.Second}),
	})
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("GET /items/{id}", limit(hello))
}

func ExampleNew_countIf() {
	limit, err := httplimit.New(limiter, httplimit.Options{
		Domain:      "login",
		Descriptors: []httplimit.Descriptor{httplimit.By(httplimit.ClientAddress("ip"))},
		// Only failed logins count.
		CountIf: func(status int) bool { return status == http.StatusUnauthorized },
	})
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("POST /login", limit(hello))
}

// tenantKey is the key of a context's tenant.
type tenantKey struct{}

func tenantOf(ctx context.Context) (string, bool) {
	tenant, ok := ctx.Value(tenantKey{}).(string)
	return tenant, ok
}

func ExampleFunc() {
	// Another middleware has put the tenant into the request's context.
	tenant := httplimit.Func("tenant", func(r *http.Request) (string, bool) { return tenantOf(r.Context()) })
	limit, err := httplimit.New(limiter, httplimit.Options{
		Domain:      "api",
		Descriptors: []httplimit.Descriptor{httplimit.By(tenant)},
		OnMissing:   httplimit.Deny,
	})
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/reports", limit(hello))
}

func ExampleRouteOf() {
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", hello)
	limit, err := httplimit.New(limiter, httplimit.Options{
		Domain:      "api",
		Descriptors: []httplimit.Descriptor{httplimit.By(httplimit.RouteOf("route", mux))},
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(":8000", limit(mux)))
}
