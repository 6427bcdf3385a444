package endpoint_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// An ID belongs to the caller who took with it: no other settles it, not even one who
// takes with the same. Whoever may take may settle, wherever refunds are off.
func TestCallersSettleOnlyWhatTheyTook(t *testing.T) {
	t.Parallel()
	change, _, _ := withCallers(t, someCallers()+"- {name: back, sha256: "+servertest.SumOf("back's")+", domains: [api], may: [give_back]}\n")
	const limits = "domain: api\ndescriptors: [{key: user, rate_limit: {name: n, algorithm: fixed_window, requests: 100, period: 1h}}]\n"
	d := servertest.Start(t, limits, change, func(o *server.Options) { o.Requests.Refunds = false })
	as := func(token string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
	}
	take := func(token string, cost string) {
		t.Helper()
		r := servertest.Taking("user=x:" + cost)
		r.Id = "one"
		if got, err := d.API().Take(as(token), r); err != nil || !got.GetAllowed() {
			t.Fatalf("%s: %v, %v", token, got, err)
		}
	}
	settle := func(token, used string, known bool, returned, left uint64) {
		t.Helper()
		got, err := d.API().Settle(as(token), servertest.Settling("one", "user=x:"+used))
		if err != nil || got.GetSettled() != known || got.GetLimits()[0].GetReturned() != returned || got.GetLimits()[0].GetRemaining() != left {
			t.Errorf("%s settles %v, %v", token, got, err)
		}
	}
	take("shop's", "30")
	settle("desk's", "0", false, 0, 0)
	take("desk's", "40")
	settle("desk's", "10", true, 30, 60)
	settle("shop's", "0", true, 30, 90)
	for token, want := range map[string]codes.Code{"other's": codes.PermissionDenied, "back's": codes.PermissionDenied, "nobody's": codes.Unauthenticated} {
		if _, err := d.API().Settle(as(token), servertest.Settling("one", "user=x:1")); status.Code(err) != want {
			t.Errorf("%s: %v, want %s", token, err, want)
		}
	}
}
