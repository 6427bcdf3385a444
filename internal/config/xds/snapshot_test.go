package xds

import (
	"fmt"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	xdsv3 "github.com/ratelimitd/ratelimitd/proto/ratelimit/xds/v3"
)

func responseOf(t testing.TB, domains ...*xdsv3.RateLimitConfig) *discoveryv3.DiscoveryResponse {
	t.Helper()
	r := &discoveryv3.DiscoveryResponse{VersionInfo: "1", Nonce: "n", TypeUrl: TypeURL}
	for _, d := range domains {
		r.Resources = append(r.Resources, &anypb.Any{TypeUrl: TypeURL, Value: marshal(t, d)})
	}
	return r
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func configOf(name string, requests uint32) *xdsv3.RateLimitConfig {
	return &xdsv3.RateLimitConfig{Name: name, Domain: name, Descriptors: []*xdsv3.RateLimitDescriptor{
		{Key: "user", Value: "a*", ShadowMode: true, RateLimit: &xdsv3.RateLimitPolicy{
			RequestsPerUnit: requests, Unit: xdsv3.RateLimitUnit_RATE_LIMIT_UNIT_WEEK, Replaces: []*xdsv3.RateLimitReplace{{Name: "x"}},
		}, Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewNumberValue(1)}}},
		{Key: "user", Descriptors: []*xdsv3.RateLimitDescriptor{{Key: "path"}}},
	}}
}

// A server sends resources in any order.
func TestTheOrderOfResourcesDoesNotMatter(t *testing.T) {
	one, _ := readResponse(responseOf(t, configOf("a", 1), configOf("b", 2)))
	if other, _ := readResponse(responseOf(t, configOf("b", 2), configOf("a", 1))); one != other {
		t.Errorf("%x and %x", one, other)
	}
	if changed, _ := readResponse(responseOf(t, configOf("b", 2), configOf("a", 3))); one == changed {
		t.Error("another content has the same digest")
	}
}

// Whatever a server sends is loaded or refused with a reason.
func FuzzSnapshot(f *testing.F) {
	good := marshal(f, responseOf(f, configOf("a", 1), configOf("b", 2)))
	f.Add(good)
	for i := 1; i < len(good); i += 7 {
		f.Add(good[:i])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r discoveryv3.DiscoveryResponse
		if proto.Unmarshal(data, &r) != nil {
			return
		}
		for _, lenient := range []bool{false, true} {
			live := limitsfile.Options{Lenient: lenient}.NewFedLive("xds", nil)
			if err := live.Feed(readResponse(&r)); err != nil {
				if err.Error() == "" {
					t.Error("refused without a reason")
				}
				continue
			}
			_ = fmt.Sprint(live.Rules().Count(), live.Rules().Fingerprint())
		}
	})
}

// loadAs loads domains with options, and returns what is in force.
func loadAs(t *testing.T, o limitsfile.Options, domains ...*xdsv3.RateLimitConfig) (*rules.Set, error) {
	t.Helper()
	live := o.NewFedLive("xds", nil)
	err := live.Feed(readResponse(responseOf(t, domains...)))
	return live.Rules(), err
}

func TestDomainsInSeveralResourcesAreMergedIfAsked(t *testing.T) {
	first, second := configOf("a", 1), configOf("b", 1)
	second.Domain = "a"
	if _, err := loadAs(t, limitsfile.Options{}, first, second); err == nil || !strings.Contains(err.Error(), `resource b: domain: found the domain "a" again, which is also in resource a`) {
		t.Errorf("not merged: %v", err)
	}
	_, err := loadAs(t, limitsfile.Options{MergeDomains: true}, first, second)
	const want = `resource b: descriptors[0]: found "user" with the value "a*" again, the first is in resource a; allowed: each key with each value once in a domain
resource b: descriptors[1]: found the key "user" again, the first is in resource a; allowed: each key with each value once in a domain`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	second.Descriptors = []*xdsv3.RateLimitDescriptor{{Key: "plan", RateLimit: first.Descriptors[0].RateLimit}}
	rules, err := loadAs(t, limitsfile.Options{MergeDomains: true}, first, second)
	if err != nil || len(rules.Domains()) != 1 || rules.Count() != 2 {
		t.Errorf("merged: %v", err)
	}
}

// Envoy Gateway sends the modes with each node of a chain.
func TestModesWithoutALimitAreNoErrorWhereFilesAreStrict(t *testing.T) {
	d := configOf("a", 1)
	d.Descriptors[1].ShadowMode, d.Descriptors[1].QuotaMode = true, true
	rules, err := loadAs(t, limitsfile.Options{}, d)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range rules.Warnings() {
		if strings.Contains(w.Text, "mode") {
			t.Error(w)
		}
	}
	d.Descriptors[1].DetailedMetric = true
	if _, err := loadAs(t, limitsfile.Options{}, d); err == nil || !strings.HasPrefix(err.Error(), "resource a: descriptors[1].detailed_metric: found detailed_metric without a limit") {
		t.Errorf("another flag: %v", err)
	}
}
