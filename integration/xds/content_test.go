package xds_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	theirs "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/config/xds"
	xdsv3 "github.com/ratelimitd/ratelimitd/proto/ratelimit/xds/v3"
)

const hour = xdsv3.RateLimitUnit_RATE_LIMIT_UNIT_HOUR

// A program can have the messages of both: their names differ, their bytes are
// the same.
func TestTheMessagesOfGoControlPlaneAreRead(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	m.setResources("1", types.Resource(&theirs.RateLimitConfig{Name: "d", Domain: "d", Descriptors: []*theirs.RateLimitDescriptor{
		{Key: "user", RateLimit: &theirs.RateLimitPolicy{RequestsPerUnit: 5, Unit: theirs.RateLimitUnit_HOUR}},
	}}))
	f := follow(t, xds.Options{Address: m.address})
	f.wantRequests("d", 5)
}

func TestEachUnitIsRead(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	var list []*xdsv3.RateLimitDescriptor
	for unit := range 7 {
		list = append(list, &xdsv3.RateLimitDescriptor{Key: fmt.Sprint(unit + 1), RateLimit: perUnit(5, xdsv3.RateLimitUnit(unit+1))})
	}
	m.set("1", domainOf("d", list...))
	f := follow(t, xds.Options{Address: m.address})
	<-f.Answered()
	for i, want := range []string{"a second", "a minute", "an hour", "a day", "every 30 days", "a year", "a week"} {
		if got := f.limit("d", fmt.Sprint(i+1)); got != "5 requests "+want {
			t.Errorf("unit %d is %q", i+1, got)
		}
	}
}

// What Envoy Gateway makes of its rules.
func TestChainsOfEnvoyGatewayLoad(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	chain := &xdsv3.RateLimitDescriptor{Key: "route", Value: "route", ShadowMode: true, QuotaMode: true, Descriptors: []*xdsv3.RateLimitDescriptor{
		{Key: "rule-0-match-0", Value: "rule-0-match-0", ShadowMode: true, Descriptors: []*xdsv3.RateLimitDescriptor{
			{Key: "rule-0-match-1", ShadowMode: true, RateLimit: perUnit(3, hour)},
		}},
		// Exact and distinct, of one CIDR.
		{Key: "masked_remote_address", Value: "10.0.0.0/8", RateLimit: perUnit(4, hour)},
		{Key: "masked_remote_address", Value: "10.0.0.0/8", Descriptors: []*xdsv3.RateLimitDescriptor{{Key: "remote_address", RateLimit: perUnit(5, hour)}}},
		// The other way round.
		{Key: "masked_remote_address", Value: "11.0.0.0/8", Descriptors: []*xdsv3.RateLimitDescriptor{{Key: "remote_address", RateLimit: perUnit(6, hour)}}},
		{Key: "masked_remote_address", Value: "11.0.0.0/8", RateLimit: perUnit(7, hour)},
	}}
	m.set("1", domainOf("d", chain))
	f := follow(t, xds.Options{Address: m.address})
	f.wantAnswers(m, `ACK "1"`)
	for _, c := range []struct {
		entries []string
		want    string
	}{
		{[]string{"route=route", "rule-0-match-0=rule-0-match-0", "rule-0-match-1=x"}, "3 requests an hour"},
		{[]string{"route=route", "masked_remote_address=10.0.0.0/8"}, "4 requests an hour"},
		{[]string{"route=route", "masked_remote_address=10.0.0.0/8", "remote_address=10.1.1.1"}, "5 requests an hour"},
		{[]string{"route=route", "masked_remote_address=11.0.0.0/8", "remote_address=11.1.1.1"}, "6 requests an hour"},
		{[]string{"route=route", "masked_remote_address=11.0.0.0/8"}, "7 requests an hour"},
		{[]string{"route=route"}, ""},
	} {
		if got := f.limit("d", c.entries...); got != c.want {
			t.Errorf("%v: %q, want %q", c.entries, got, c.want)
		}
	}
	rule := f.live.Rules().Domain("d").Match([]bucket.Entry{{Key: "route", Value: "route"}, {Key: "rule-0-match-0", Value: "rule-0-match-0"}, {Key: "rule-0-match-1", Value: "x"}})
	if !rule.ShadowMode || rule.Path() != "route=route / rule-0-match-0=rule-0-match-0 / rule-0-match-1" || rule.Limits[0].Postpaid != bucket.PostpaidAuto {
		t.Errorf("%+v, %s", rule, rule.Path())
	}
	if n := f.log.Count("shadow_mode"); n > 0 {
		t.Errorf("%d lines about shadow_mode", n)
	}
	below := f.live.Rules().Domain("d").Match([]bucket.Entry{{Key: "route", Value: "route"}, {Key: "masked_remote_address", Value: "10.0.0.0/8"}, {Key: "remote_address", Value: "x"}})
	if below.Path() != "route=route / masked_remote_address=10.0.0.0/8 / remote_address" {
		t.Errorf("path %s", below.Path())
	}
}

func TestEverythingThatAMessageSaysIsRead(t *testing.T) {
	t.Parallel()
	about, err := structpb.NewStruct(map[string]any{"a": "b", "n": 5, "f": 0.5, "l": []any{true, nil, map[string]any{"c": "d"}}})
	if err != nil {
		t.Fatal(err)
	}
	limit := perUnit(5, hour)
	limit.Name, limit.Replaces = "mine", []*xdsv3.RateLimitReplace{{Name: "other"}}
	m := manage(t, nil)
	m.set("1", domainOf("d",
		&xdsv3.RateLimitDescriptor{Key: "a", RateLimit: limit, QuotaMode: true, DetailedMetric: true, Metadata: about},
		&xdsv3.RateLimitDescriptor{Key: "b", RateLimit: &xdsv3.RateLimitPolicy{Unlimited: true, Name: "other"}},
		&xdsv3.RateLimitDescriptor{Key: "c", Value: "x*", RateLimit: perUnit(0, hour)},
		&xdsv3.RateLimitDescriptor{Key: "c", RateLimit: perUnit(1, hour)}, // no value is any value
	))
	f := follow(t, xds.Options{Address: m.address})
	f.wantAnswers(m, `ACK "1"`)
	match := func(key, value string) string {
		r := f.live.Rules().Domain("d").Match([]bucket.Entry{{Key: key, Value: value}})
		return fmt.Sprint(r.QuotaMode, r.DetailedMetric, r.Unlimited, r.Metadata, r.Replaces, len(r.Limits))
	}
	if got := match("a", "x"); got != "true true false map[a:b f:0.5 l:[true <nil> map[c:d]] n:5] [[other]] 1" {
		t.Error(got)
	}
	if got := match("b", "x"); got != "false false true map[] [] 0" {
		t.Error(got)
	}
	if got := f.limit("d", "c=xy"); got != "denies always" {
		t.Error(got)
	}
	if got := f.limit("d", "c=y"); got != "1 request an hour" {
		t.Error(got)
	}
}

func TestWhatFilesMayNotSayIsRefused(t *testing.T) {
	t.Parallel()
	one := func(d *xdsv3.RateLimitDescriptor) *xdsv3.RateLimitConfig { return domainOf("d", d) }
	limited := func(p *xdsv3.RateLimitPolicy) *xdsv3.RateLimitConfig {
		return one(&xdsv3.RateLimitDescriptor{Key: "a", RateLimit: p})
	}
	deep := &xdsv3.RateLimitDescriptor{Key: "a"}
	for range 400 {
		deep = &xdsv3.RateLimitDescriptor{Key: "a", Descriptors: []*xdsv3.RateLimitDescriptor{deep}}
	}
	for _, c := range []struct {
		name, want string
		domain     *xdsv3.RateLimitConfig
	}{
		{"a limit without a unit", "resource d: descriptors[0].rate_limit.unit: found the invalid rate limit unit 0", limited(&xdsv3.RateLimitPolicy{RequestsPerUnit: 1})},
		{"an unknown unit", "resource d: descriptors[0].rate_limit.unit: found the invalid rate limit unit 99", limited(perUnit(1, 99))},
		{"two limits of one entry", "resource d: descriptors[1]: found the key \"a\" again, the first is descriptors[0]", domainOf("d",
			&xdsv3.RateLimitDescriptor{Key: "a", RateLimit: perUnit(1, hour)}, &xdsv3.RateLimitDescriptor{Key: "a", RateLimit: perUnit(2, hour)})},
		{"nesting without end", "resource d: " + strings.Repeat("descriptors[0].", 256) + "descriptors: found descriptors within more than 255 others", one(deep)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := manage(t, nil)
			m.set("1", c.domain)
			f := follow(t, xds.Options{Address: m.address})
			<-f.Answered()
			asynctest.Eventually(t, "a refusal", func() bool { return m.lastDetail() != "" })
			if got := m.lastDetail(); !strings.HasPrefix(got, c.want) || strings.Contains(got, "\n") {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestWhatIsNoRateLimitConfigIsRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	good := packed(domain("good", 5))
	wrapped, err := anypb.New(&discoveryv3.Resource{Name: "d", Resource: packed(domain("d", 5))})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		bad        *anypb.Any
	}{
		{"another type", `resource 1 of 2: found the type "type.googleapis.com/envoy.config.cluster.v3.Cluster"; allowed: type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig`,
			&anypb.Any{TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster", Value: good.GetValue()}},
		{"wrapped", `resource 1 of 2: found the type "type.googleapis.com/envoy.service.discovery.v3.Resource"`, wrapped},
		{"torn bytes", "resource d: found bytes that are no RateLimitConfig: ", &anypb.Any{TypeUrl: xds.TypeURL, Value: packed(domain("d", 5)).GetValue()[:12]}},
		{"random bytes", "resource 1 of 2: found bytes that are no RateLimitConfig: ", &anypb.Any{TypeUrl: xds.TypeURL, Value: []byte{0xff, 0xff, 0xff}}},
		{"a text that is no UTF-8", "resource d: found bytes that are no RateLimitConfig: ", &anypb.Any{TypeUrl: xds.TypeURL, Value: append(packed(domain("d", 5)).GetValue(), 0x12, 1, 0xff)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := serveRaw(t, once(response("1", good), response("2", packed(domain("good", 6)), c.bad), response("3", packed(domain("good", 7)))))
			f := follow(t, xds.Options{Address: s.address})
			f.wantRequests("good", 7)
			nack := s.asked()[2]
			if detail := nack.GetErrorDetail().GetMessage(); nack.GetVersionInfo() != "1" || nack.GetResponseNonce() != "n2" || !strings.HasPrefix(detail, c.want) {
				t.Errorf("version %q, nonce %q, %s", nack.GetVersionInfo(), nack.GetResponseNonce(), detail)
			}
		})
	}
}

// The default of gRPC is 4 MiB.
func TestFiveMebibytesLoad(t *testing.T) {
	t.Parallel()
	big := domain("d", 5)
	for i := range 5000 {
		big.Descriptors = append(big.Descriptors, &xdsv3.RateLimitDescriptor{Key: "k", Value: fmt.Sprintf("%d%s", i, bytes.Repeat([]byte{'x'}, 1100)), RateLimit: perUnit(1, hour)})
	}
	if proto.Size(big) < 5<<20 {
		t.Fatal("too small")
	}
	m := manage(t, nil)
	m.set("1", big)
	f := follow(t, xds.Options{Address: m.address})
	f.wantRequests("d", 5)
	small := follow(t, xds.Options{Address: m.address, MaxBytes: 4 << 20})
	small.wantLog("received message larger than max")
}
