package envoyrls_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

func TestHitsOfADescriptorReplaceTheRequests(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, strings.ReplaceAll(unitLimits, "requests_per_unit:", "postpaid: false, requests_per_unit:"))
	for _, c := range []struct {
		name        string
		cost        uint32
		hits        []string
		descriptors []string
		want        string
	}{
		{"goes before the request's", 9, []string{"2", ""}, []string{"hour=x", "most=x"},
			"OK; OK h 5/HOUR remaining 3 reset 59m50s; OK  4294967295/SECOND remaining 4294967286 reset 1s"},
		{"0 peeks", 9, []string{"0"}, []string{"hour=x"}, "OK; OK h 5/HOUR remaining 3 reset 59m50s"},
		{"all of it", 0, []string{"3"}, []string{"hour=x"}, "OK; OK h 5/HOUR remaining 0 reset 59m50s"},
		{"0 peeks and nothing is left", 0, []string{"0"}, []string{"hour=x"}, "OVER_LIMIT; OVER_LIMIT h 5/HOUR remaining 0 reset 59m50s; retry-after: 3590"},
		{"a refund", 0, []string{"-2"}, []string{"hour=x"}, "OK; OK h 5/HOUR remaining 2 reset 59m50s"},
		{"a refund of the request's hits", 2, []string{"-"}, []string{"hour=x"}, "OK; OK h 5/HOUR remaining 4 reset 59m50s"},
		{"a refund of what is unset", 0, []string{"-"}, []string{"hour=x"}, "OK; OK h 5/HOUR remaining 5 reset 0s"},
		{"no more than full", 0, []string{"-4000"}, []string{"hour=x"}, "OK; OK h 5/HOUR remaining 5 reset 0s"},
		{"a refund of 0 peeks", 0, []string{"-0"}, []string{"hour=x"}, "OK; OK h 5/HOUR remaining 5 reset 0s"},
		{"a refund beside a denial", 0, []string{"5", "-1", "6"}, []string{"minute=x", "minute=y", "day=x"},
			"OVER_LIMIT; OK m 5/MINUTE remaining 5 reset 0s; OK m 5/MINUTE remaining 5 reset 0s; OVER_LIMIT d 5/DAY remaining 5 reset 0s"},
		{"costs and refunds of one limit add", 0, []string{"5", "-3"}, []string{"minute=x", "minute=x"},
			"OK; OK m 5/MINUTE remaining 3 reset 50s; OK m 5/MINUTE remaining 3 reset 50s"},
		{"more than can be", 0, []string{"18446744073709551615"}, []string{"hour=x"}, "OVER_LIMIT; OVER_LIMIT h 5/HOUR remaining 5 reset 0s"},
		{"more than 63 bits, refunded", 0, []string{"-18446744073709551615"}, []string{"minute=x"}, "OK; OK m 5/MINUTE remaining 5 reset 0s"},
		{"unlimited", 0, []string{"-1"}, []string{"free=x"}, "OK; OK remaining 4294967295"},
	} {
		t.Run(c.name, func(t *testing.T) {
			servertest.WantShown(t, d.Send(servertest.Charging(t, c.cost, c.hits, c.descriptors...)), c.want)
		})
	}
	p := d.Post(`{"domain":"api","hitsAddend":3,"descriptors":[{"entries":[{"key":"day","value":"y"}],"hitsAddend":"5"}]}`)
	if p.Code != 200 {
		t.Errorf("POST: %d %s", p.Code, p.Body)
	}
	p = d.Post(`{"domain":"api","descriptors":[{"entries":[{"key":"day","value":"y"}],"hitsAddend":"2","isNegativeHits":true}]}`)
	if p.Code != 200 || !strings.Contains(p.Body, `"limitRemaining":2`) {
		t.Errorf("POST of a refund: %d %s", p.Code, p.Body)
	}
}

func TestCostsAreCut(t *testing.T) {
	t.Parallel()
	store := &hitStore{Store: &servertest.FakeStore{}}
	d := servertest.Start(t, servertest.OneLimit, servertest.On(store))
	d.Send(servertest.Charging(t, 0, []string{"9223372036854775808", "-18446744073709551615", "9007199254740992", "0"}, servertest.Copies(4, "user=x")...))
	var got []int64
	for _, h := range store.taken() {
		got = append(got, h.Cost)
	}
	if want := []int64{bucket.MaxCost, -bucket.MaxCost, bucket.MaxCost, 0}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("costs %d, want %d", got, want)
	}
}

func TestRefundsCanBeForbidden(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit, func(o *server.Options) { o.Requests.Refunds = false })
	const says = "descriptors[1].is_negative_hits: refunds are not taken here, or not from this caller (settings api.refunds, api.callers_file)"
	r := servertest.Charging(t, 1, []string{"1", "-1"}, "user=x", "user=y")
	if _, err := d.Try(r); err == nil || err.Error() != "rpc error: code = PermissionDenied desc = "+says {
		t.Errorf("got %v", err)
	}
	if p := d.Post(servertest.ToJSON(t, r)); p.Code != 403 || !strings.Contains(p.Body, says) {
		t.Errorf("got %d %s", p.Code, p.Body)
	}
	servertest.WantShown(t, d.Send(servertest.Charging(t, 1, []string{"0"}, "user=x")), "OK; OK u 5/HOUR remaining 5 reset 0s")
	d.WantMetrics(map[string]float64{
		`ratelimitd_requests_total{api="grpc",code="PermissionDenied",outcome="error"}`: 1,
		`ratelimitd_requests_total{api="http",code="PermissionDenied",outcome="error"}`: 1,
	})
}
