package xds_test

import (
	"path/filepath"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/config/xds"
)

// What is not the configuration that was asked for changes neither the limits nor
// the cache.
func TestAResponseThatIsNoConfigurationChangesNothing(t *testing.T) {
	t.Parallel()
	cluster, err := anypb.New(&clusterv3.Cluster{Name: "c"})
	if err != nil {
		t.Fatal(err)
	}
	const empty = "; allowed: resources, or for a configuration without any the version_info and the type_url " + xds.TypeURL
	for _, c := range []struct {
		name, want string
		response   *discoveryv3.DiscoveryResponse
	}{
		{name: "nothing", response: &discoveryv3.DiscoveryResponse{}, want: "the response: found neither resources nor a type_url" + empty},
		{name: "no type", response: &discoveryv3.DiscoveryResponse{Nonce: "n", VersionInfo: "2"}, want: "the response: found neither resources nor a type_url" + empty},
		{name: "no version", response: &discoveryv3.DiscoveryResponse{Nonce: "n", TypeUrl: xds.TypeURL}, want: "the response: found neither resources nor a version_info" + empty},
		{name: "limits by another type", response: &discoveryv3.DiscoveryResponse{Nonce: "n", VersionInfo: "2", TypeUrl: resource.ClusterType, Resources: []*anypb.Any{packed(domain("d", 6))}},
			want: `the response: found the type_url "` + resource.ClusterType + `"; allowed: ` + xds.TypeURL + ", which was asked for"},
		{name: "a resource of another type", response: response("2", packed(domain("d", 6)), cluster),
			want: `resource 1 of 2: found the type "` + resource.ClusterType + `"; allowed: ` + xds.TypeURL},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := serveRaw(t, once(response("1", packed(domain("d", 5))), c.response, c.response, c.response, response("3", packed(domain("d", 7)))))
			path := filepath.Join(t.TempDir(), "cache")
			f := follow(t, xds.Options{Address: s.address, CachePath: path})
			asynctest.Eventually(t, "the last answer", func() bool { return len(s.asked()) == 6 })
			answers := s.asked()
			for i, r := range answers[2:5] {
				if r.GetTypeUrl() != xds.TypeURL || r.GetResponseNonce() != c.response.GetNonce() || r.GetErrorDetail().GetMessage() != c.want {
					t.Errorf("answer %d: %v", i, r.DiscoveryRequest)
				}
				if c.response.GetTypeUrl() == resource.ClusterType && r.GetVersionInfo() != "1" {
					t.Errorf("answer %d names the version of another type: %q", i, r.GetVersionInfo())
				}
			}
			if answers[5].GetErrorDetail() != nil || answers[5].GetVersionInfo() != "3" {
				t.Errorf("the next configuration: %v", answers[5].DiscoveryRequest)
			}
			f.wantRequests("d", 7)
			if f.metric("ratelimitd_xds_responses_total", "rejected") != 3 || f.metric("ratelimitd_xds_emptied_total", "") != 0 || f.live.Status().Generation != 2 {
				t.Errorf("%v rejected, generation %d", f.metric("ratelimitd_xds_responses_total", "rejected"), f.live.Status().Generation)
			}
			if lines := f.log.Count(`level=ERROR msg="limits not loaded`); lines != 1 {
				t.Errorf("%d lines are logged\n%s", lines, f.log.String())
			}
		})
	}
}

// Servers leave out what the resources say themselves.
func TestLimitsWithoutTypeVersionOrNonceAreLoaded(t *testing.T) {
	t.Parallel()
	s := serveRaw(t, once(
		&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{packed(domain("d", 5))}},
		&discoveryv3.DiscoveryResponse{TypeUrl: xds.TypeURL, VersionInfo: "2", Resources: []*anypb.Any{packed(domain("d", 6))}},
	))
	f := follow(t, xds.Options{Address: s.address})
	f.wantRequests("d", 6)
	asynctest.Eventually(t, "two answers", func() bool { return len(s.asked()) == 3 })
	for i, r := range s.asked() {
		if r.GetErrorDetail() != nil || r.GetResponseNonce() != "" {
			t.Errorf("request %d: %v", i, r.DiscoveryRequest)
		}
	}
}

func TestAConfigurationThatRemovesAllLimitsIsTold(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	m.set("1", domain("a", 5), domain("b", 5))
	f := follow(t, xds.Options{Address: m.address})
	f.wantRequests("a", 5)
	m.set("2")
	f.wantMetric("ratelimitd_xds_emptied_total", "", is(1))
	f.wantLog(`level=ERROR msg="xds: the server sent a configuration without limits; nothing is limited now"`)
	m.set("3")
	f.wantAnswers(m, `ACK "1"`, `ACK "2"`, `ACK "3"`)
	if n := f.metric("ratelimitd_xds_emptied_total", ""); n != 1 {
		t.Errorf("counted %v times", n)
	}
	m.set("4", domain("a", 5))
	f.wantRequests("a", 5)
	m.set("5", domainOf("a")) // a domain without a rule
	f.wantMetric("ratelimitd_xds_emptied_total", "", is(2))
}
