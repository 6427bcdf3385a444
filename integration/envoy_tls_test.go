package integration

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/certtest"
)

// overTLS is a cluster behind TLS. It must show a certificate for 127.0.0.1
// from the authority. Envoy shows its own certificate if it has one.
func overTLS(name, addr, authority, cert, key string) cluster {
	own := ""
	if cert != "" {
		own = fmt.Sprintf("tls_certificates: [{certificate_chain: {filename: %s}, private_key: {filename: %s}}]", cert, key)
	}
	return cluster{Name: name, Addrs: []string{addr}, GRPC: true, More: fmt.Sprintf(`
transport_socket:
  name: envoy.transport_sockets.tls
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
    common_tls_context:
      validation_context:
        trusted_ca: {filename: %s}
        match_typed_subject_alt_names: [{san_type: IP_ADDRESS, matcher: {exact: 127.0.0.1}}]
%s
`, authority, indent(6, own))}
}

// Envoy reaches the daemon over TLS and mutual TLS, but only if both know each
// other.
func TestEnvoyReachesTheDaemonOverTLS(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	ca := certtest.New(t, "ca")
	serverCert, serverKey := ca.IssueLoopback(t, "server").Files()
	clientCert, clientKey := ca.IssueLoopback(t, "client").Files()
	strangers := certtest.New(t, "strangers")
	strangerCert, strangerKey := strangers.IssueLoopback(t, "stranger").Files()
	limits := t.TempDir()
	write(t, limits, "envoy.yaml", usersOf2)
	serve := []string{"--limits-path", limits, "--grpc-tls-cert", serverCert, "--grpc-tls-key", serverKey}
	tls := start(t, serve...)
	mutual := start(t, append(serve, "--grpc-tls-client-ca", ca.File, "--http-address", "")...)

	limited, fails := []int{200, 200, 429}, []int{500, 500, 500}
	cases := []struct {
		cluster
		want []int
	}{
		{overTLS("tls", tls.grpc, ca.File, "", ""), limited},
		{overTLS("tls-unknown-server", tls.grpc, strangers.File, "", ""), fails},
		{cluster{Name: "plain", Addrs: []string{tls.grpc}, GRPC: true}, fails},
		{overTLS("mutual", mutual.grpc, ca.File, clientCert, clientKey), limited},
		{overTLS("mutual-without", mutual.grpc, ca.File, "", ""), fails},
		{overTLS("mutual-stranger", mutual.grpc, ca.File, strangerCert, strangerKey), fails},
	}
	b := startBackend(t)
	clusters := []cluster{b.cluster()}
	var fronts []front
	for _, tc := range cases {
		clusters = append(clusters, tc.cluster)
		fronts = append(fronts, front{
			Name: tc.Name, Service: tc.Name, Filter: patiently + "\nfailure_mode_deny: true", Routes: userRoutes,
		})
	}
	e := startEnvoy(t, configure(t, fronts, clusters...))
	for _, tc := range cases {
		t.Run(tc.Name, func(t *testing.T) {
			if got := e.statuses(3, tc.Name, "/", "x-user: alice"); !slices.Equal(got, tc.want) {
				t.Errorf("a limit of 2 gives %v, want %v", got, tc.want)
			}
		})
	}
}
