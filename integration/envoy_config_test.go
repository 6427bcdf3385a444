package integration

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// patiently is for a rate-limit filter in tests of other things than its
// timeout.
const patiently = "timeout: 20s"

// front is a listener of Envoy with the HTTP rate-limit filter. All fields but
// the name are YAML; empty ones are left out.
type front struct {
	Name string
	// Filter is the rest of the rate-limit filter, beside its domain and service.
	Filter string
	// Before are the filters before it.
	Before string
	Routes string
	// Log is the format of its lines in Envoy's log, which begin with the name.
	Log string
	// Domain is "envoy" if it is empty.
	Domain string
	// Service is the cluster to ask, "ratelimitd" if it is empty.
	Service string
	// Retry is the retry policy of calls to the service.
	Retry string
	// Tracing is how it makes spans, beside other fields of its connection manager.
	Tracing string
}

// cluster is one of Envoy's.
type cluster struct {
	Name  string
	Addrs []string // host:port
	GRPC  bool
	// More is YAML.
	More string
}

// configure writes the configuration of an Envoy.
func configure(t testing.TB, fronts []front, clusters ...cluster) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("static_resources:\n  listeners:\n")
	for _, f := range fronts {
		f.write(&b)
	}
	b.WriteString("  clusters:\n")
	for _, c := range clusters {
		c.write(t, &b)
	}
	return b.String()
}

func (f front) write(b *strings.Builder) {
	domain, service := f.Domain, f.Service
	if domain == "" {
		domain = "envoy"
	}
	if service == "" {
		service = "ratelimitd"
	}
	fmt.Fprintf(b, `
    - name: %[1]s
      address: {socket_address: {address: 127.0.0.1, port_value: 0}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: %[1]s
                use_remote_address: true
%[8]s
                http_filters:
%[2]s
                  - name: envoy.filters.http.ratelimit
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                      domain: %[3]s
%[4]s
                      rate_limit_service:
                        transport_api_version: V3
                        grpc_service:
                          envoy_grpc: {cluster_name: %[5]s}
%[6]s
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:
%[7]s
`, f.Name, indent(18, f.Before), domain, indent(22, f.Filter), service, indent(26, f.Retry), indent(24, f.Routes), indent(16, f.Tracing))
	if f.Log != "" {
		fmt.Fprintf(b, `
                access_log:
                  - name: envoy.access_loggers.file
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
                      path: /dev/stdout
                      log_format: {text_format_source: {inline_string: %q}}
`, f.Name+" "+f.Log+"\n")
	}
}

func (c cluster) write(t testing.TB, b *strings.Builder) {
	t.Helper()
	fmt.Fprintf(b, `
    - name: %[1]s
      connect_timeout: 5s
      load_assignment:
        cluster_name: %[1]s
        endpoints:
          - lb_endpoints:
`, c.Name)
	for _, addr := range c.Addrs {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(b, "              - endpoint: {address: {socket_address: {address: %s, port_value: %s}}}\n", host, port)
	}
	if c.GRPC {
		b.WriteString(`
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {http2_protocol_options: {}}
`)
	}
	b.WriteString(indent(6, c.More) + "\n")
}

// indent puts n spaces before each line.
func indent(n int, text string) string {
	text = strings.Trim(text, "\n")
	if text == "" {
		return ""
	}
	space := strings.Repeat(" ", n)
	return space + strings.ReplaceAll(text, "\n", "\n"+space)
}

// ratelimitdAt is the cluster that Envoy asks.
func ratelimitdAt(addrs ...string) cluster {
	return cluster{Name: "ratelimitd", Addrs: addrs, GRPC: true}
}

func (b *backend) cluster() cluster { return cluster{Name: "backend", Addrs: []string{b.addr}} }
