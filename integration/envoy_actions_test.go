package integration

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// patiently is for a rate-limit filter in tests of other things than its
// timeout.
const patiently = "timeout: 20s"

// actionLimits lets the descriptor of each action pass twice.
const actionLimits = `
domain: envoy
algorithm: sliding_log
descriptors:
  - key: user
    rate_limit: {requests: 2, period: 1d}
  - key: remote_address
    value: 127.0.0.1
    rate_limit: {requests: 2, period: 1d}
  - key: masked_remote_address
    value: 127.0.2.0/24
    rate_limit: {requests: 2, period: 1d}
  - key: generic_key
    value: search
    rate_limit: {requests: 2, period: 1d}
  - key: kind
    value: write
    rate_limit: {requests: 2, period: 1d}
  - key: tag
    rate_limit: {requests: 2, period: 1d}
  - key: tenant
    value: acme
    rate_limit: {requests: 2, period: 1d}
  - key: seen
    rate_limit: {requests: 2, period: 1d}
  - key: source_cluster
    value: edge
    descriptors:
      - key: destination_cluster
        value: backend
        rate_limit: {requests: 2, period: 1d}
  - key: destination_cluster
    value: backend
    descriptors:
      - key: user
        rate_limit: {requests: 2, period: 1d}
`

// actionRoutes has a path for each action, and /several with more than one.
const actionRoutes = `
- match: {path: /request_headers}
  route:
    cluster: backend
    rate_limits: [{actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]}]
- match: {path: /remote_address}
  route:
    cluster: backend
    rate_limits: [{actions: [{remote_address: {}}]}]
- match: {path: /masked_remote_address}
  route:
    cluster: backend
    rate_limits: [{actions: [{masked_remote_address: {v4_prefix_mask_len: 24}}]}]
- match: {path: /generic_key}
  route:
    cluster: backend
    rate_limits: [{actions: [{generic_key: {descriptor_value: search}}]}]
- match: {path: /generic_key/other}
  route:
    cluster: backend
    rate_limits: [{actions: [{generic_key: {descriptor_value: browse}}]}]
- match: {path: /header_value_match}
  route:
    cluster: backend
    rate_limits:
      - actions:
          - header_value_match:
              descriptor_key: kind
              descriptor_value: write
              headers: [{name: ":method", string_match: {safe_regex: {regex: POST|PUT|DELETE}}}]
- match: {path: /query_parameters}
  route:
    cluster: backend
    rate_limits: [{actions: [{query_parameters: {query_parameter_name: tag, descriptor_key: tag}}]}]
- match: {path: /metadata/route}
  metadata: {filter_metadata: {plans: {tenant: acme}}}
  route:
    cluster: backend
    rate_limits:
      - actions:
          - metadata: {source: ROUTE_ENTRY, descriptor_key: tenant, metadata_key: {key: plans, path: [{key: tenant}]}}
- match: {path: /metadata/route/other}
  metadata: {filter_metadata: {plans: {tenant: globex}}}
  route:
    cluster: backend
    rate_limits:
      - actions:
          - metadata: {source: ROUTE_ENTRY, descriptor_key: tenant, metadata_key: {key: plans, path: [{key: tenant}]}}
- match: {path: /metadata/dynamic}
  route:
    cluster: backend
    rate_limits:
      - actions:
          - metadata: {source: DYNAMIC, descriptor_key: seen, metadata_key: {key: seen, path: [{key: by}]}, default_value: nobody}
- match: {path: /clusters}
  route:
    cluster: backend
    rate_limits: [{actions: [{source_cluster: {}}, {destination_cluster: {}}]}]
- match: {path: /clusters/other}
  route:
    cluster: twin
    rate_limits: [{actions: [{source_cluster: {}}, {destination_cluster: {}}]}]
- match: {path: /several}
  route:
    cluster: backend
    rate_limits:
      - actions: [{destination_cluster: {}}, {request_headers: {header_name: x-user, descriptor_key: user}}]
      - actions: [{request_headers: {header_name: x-account, descriptor_key: user}}]
`

// headerToMetadata puts the header x-seen into the metadata for filters.
const headerToMetadata = `
- name: envoy.filters.http.header_to_metadata
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
    request_rules:
      - header: x-seen
        on_header_present: {metadata_namespace: seen, key: by, type: STRING}
`

// from asks as a client at another address of the machine.
func from(addr string) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, to)
		},
	}}
}

// way is one way in which a request comes to Envoy.
type way struct {
	path    string
	method  string // GET unless it is said
	from    string // 127.0.0.1 unless it is said
	headers []string
}

func (e *envoy) come(listener string, w way) answer {
	e.t.Helper()
	method, client := http.MethodGet, http.DefaultClient
	if w.method != "" {
		method = w.method
	}
	if w.from != "" {
		client = from(w.from)
	}
	return e.send(client, method, e.url(listener, w.path), "", w.headers...)
}

// Each action makes the descriptor of its rule. A request that comes another
// way does not count against it.
func TestEachEnvoyActionMakesItsDescriptor(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	dir := t.TempDir()
	write(t, dir, "envoy.yaml", actionLimits)
	d := start(t, "--limits-path", dir)
	b := startBackend(t)
	twin := b.cluster()
	twin.Name = "twin"
	e := startEnvoy(t, configure(t,
		[]front{{Name: "actions", Filter: patiently, Before: headerToMetadata, Routes: actionRoutes}},
		ratelimitdAt(d.grpc), b.cluster(), twin))

	for _, tc := range []struct{ one, other way }{
		{way{path: "/request_headers", headers: []string{"x-user: alice"}},
			way{path: "/request_headers", headers: []string{"x-user: bob"}}},
		{way{path: "/remote_address"},
			way{path: "/remote_address", from: "127.0.0.2"}},
		{way{path: "/masked_remote_address", from: "127.0.2.7"},
			way{path: "/masked_remote_address", from: "127.0.3.7"}},
		{way{path: "/generic_key"},
			way{path: "/generic_key/other"}},
		{way{path: "/header_value_match", method: http.MethodPost},
			way{path: "/header_value_match"}},
		{way{path: "/query_parameters?tag=a"},
			way{path: "/query_parameters?tag=b"}},
		{way{path: "/metadata/route"},
			way{path: "/metadata/route/other"}},
		{way{path: "/metadata/dynamic", headers: []string{"x-seen: x"}},
			way{path: "/metadata/dynamic"}}, // the default
		{way{path: "/clusters"},
			way{path: "/clusters/other"}},
		{way{path: "/several", headers: []string{"x-user: erin", "x-account: carol"}},
			way{path: "/several", headers: []string{"x-user: frank", "x-account: dave"}}},
	} {
		path, _, _ := strings.Cut(tc.one.path, "?")
		t.Run(path[1:], func(t *testing.T) {
			for i := range 2 {
				if a := e.come("actions", tc.one); a.status != 200 {
					t.Fatalf("request %d of a limit of 2 gives %v", i+1, a)
				}
			}
			a := e.come("actions", tc.one)
			if a.status != 429 || a.header.Get("x-envoy-ratelimited") != "true" {
				t.Errorf("request 3 of a limit of 2 gives %v", a)
			}
			if n := b.served(path); n != 2 {
				t.Errorf("%d requests have reached the backend, want 2", n)
			}
			if a := e.come("actions", tc.other); a.status != 200 {
				t.Errorf("another request, which the limit is not for, gives %v", a)
			}
		})
	}

	// A denial charges no descriptor of a request: Carol has no more, so Grace
	// loses nothing by asking with her.
	for range 3 {
		if a := e.get("actions", "/several", "x-user: grace", "x-account: carol"); a.status != 429 {
			t.Errorf("a request for two users, one of whom has no more, gives %v", a)
		}
	}
	if got := e.statuses(3, "actions", "/several", "x-user: grace"); !slices.Equal(got, []int{200, 200, 429}) {
		t.Errorf("after denials a limit of 2 gives %v", got)
	}
}
