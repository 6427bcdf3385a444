package integration

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/certtest"
	"github.com/ratelimitd/ratelimitd/internal/config/xds"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	xdsv3 "github.com/ratelimitd/ratelimitd/proto/ratelimit/xds/v3"
)

// othersPods runs the image in the place of envoyproxy/ratelimit, with all that
// others give it: the command, the environment, the files, a root that is read-only,
// and a user without a name. All hosts that they name are this machine.
func othersPods(t *testing.T, image string) {
	if engine := os.Getenv("DOCKER_HOST"); engine != "" && !strings.HasPrefix(engine, "unix:") {
		t.Skipf("containers of the engine at %s do not reach this process", engine)
	}
	ca := certtest.New(t, "envoy-gateway")
	// The Secret envoy-rate-limit. Envoy has one like it.
	secret := ca.Issue(t, x509.Certificate{
		DNSNames: []string{"*.envoy-gateway-system"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	overTLS := credentials.NewTLS(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{secret.TLS(t)}, ServerName: "envoy-ratelimit.envoy-gateway-system"})
	server := ca.Issue(t, x509.Certificate{DNSNames: []string{"envoy-gateway"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	gateway := serveXDS(t, "envoy-ratelimit", credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{server.TLS(t)}, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	}))
	aiGateway := serveXDS(t, "envoy-ai-gateway-ratelimit", insecure.NewCredentials())
	volumes := volumesWith(t, image, map[string]string{
		"/certs/tls.crt": string(secret.Cert), "/certs/tls.key": string(secret.Key), "/certs/ca.crt": string(ca.PEM),
		"/data/ratelimit/config/config.yaml": yearlyOf(3),
	})

	allHave := []string{"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false", "USE_STATSD=false", "REDIS_SOCKET_TYPE=tcp"}
	for _, c := range []struct {
		name, redis string
		env, args   []string
		envoy       credentials.TransportCredentials
		metrics     string // the port, if it has one
	}{
		{"Envoy Gateway", "redis.redis-system.svc.cluster.local", []string{
			"LOG_LEVEL=info", "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:" + gateway, "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
			"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=/certs/tls.crt", "GRPC_SERVER_TLS_KEY=/certs/tls.key", "GRPC_SERVER_TLS_CA_CERT=/certs/ca.crt",
			"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/certs/tls.crt", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/certs/tls.key",
			"CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/certs/ca.crt", "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
			"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=:19001", "PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml",
			"TRACING_ENABLED=true", "TRACING_SERVICE_NAME=envoy-ratelimit", "TRACING_SERVICE_NAMESPACE=envoy-gateway-system", "TRACING_SERVICE_INSTANCE_ID=envoy-ratelimit-1",
			"TRACING_SAMPLING_RATE=1.0", "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318", // no collector is there
		}, nil, overTLS, "19001"},
		{"Envoy AI Gateway", "redis", []string{
			"LOG_LEVEL=info", "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=ai-gateway-controller:" + aiGateway, "CONFIG_GRPC_XDS_NODE_ID=envoy-ai-gateway-ratelimit",
			"FORCE_START_WITHOUT_INITIAL_CONFIG=true",
		}, []string{"--quotaRateLimitServiceAddr=envoy-ai-gateway-ratelimit.envoy-gateway-system:8081"}, insecure.NewCredentials(), ""},
		{"Istio's sample", "redis", []string{"LOG_LEVEL=debug", "HOST=::", "GRPC_HOST=::"}, nil, insecure.NewCredentials(), ""},
		{"Contour's example", "redis.projectcontour", []string{"LOG_LEVEL=info"}, nil, insecure.NewCredentials(), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t, "--bind", "0.0.0.0", "--protected-mode", "no")
			create := []string{"--read-only", "--user", "65534:65534", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--volumes-from", volumes + ":ro", "--entrypoint", "/bin/ratelimit"}
			for _, name := range []string{"envoy-gateway", "ai-gateway-controller", c.redis} {
				create = append(create, "--add-host", name+":host-gateway")
			}
			for _, e := range slices.Concat(allHave, c.env, []string{"REDIS_URL=" + c.redis + ":" + portOf(t, redis.Addr())}) {
				create = append(create, "--env", e)
			}
			container := createContainer(t, slices.Concat(create, []string{image}, c.args)...)
			t.Cleanup(func() {
				if t.Failed() {
					out, _ := docker(t, "", "logs", container)
					t.Log(out)
				}
			})
			mustDocker(t, "", "start", container)
			ip := mustDocker(t, "", "inspect", "--format", "{{.NetworkSettings.IPAddress}}", container)
			asynctest.Eventually(t, "the health 200", func() bool {
				r, err := http.Get("http://" + ip + ":8080/healthcheck")
				if err != nil {
					return false
				}
				r.Body.Close()
				return r.StatusCode == http.StatusOK
			})
			d := &daemon{t: t}
			d.dialAs(ip+":8081", c.envoy)
			asynctest.Eventually(t, "limits", func() bool {
				r, err := d.tryAsk("api", 1, "user=b")
				return err == nil && r.GetStatuses()[0].GetCurrentLimit() != nil
			})
			d.wantLimit(3)
			if c.metrics != "" {
				if code, body := get(t, "http://"+ip+":"+c.metrics+"/metrics"); code != http.StatusOK || !strings.Contains(body, "ratelimitd_xds_connected 1") {
					t.Errorf("metrics: %d\n%s", code, body)
				}
			}
		})
	}
}

// volumesWith returns a container whose volumes have these files. Anyone may read
// them, as in Kubernetes.
func volumesWith(t *testing.T, image string, files map[string]string) string {
	t.Helper()
	tree := t.TempDir()
	args := []string{}
	for name, text := range files {
		path := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		volume := "/" + strings.Split(name, "/")[1]
		args = append(args, "--volume", volume)
	}
	container := createContainer(t, append(args, image)...)
	mustDocker(t, "", "cp", tree+"/.", container+":/")
	return container
}

// xdsServer has the limits of yearlyOf(3) for one node, and nothing for others.
type xdsServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	node string
}

// serveXDS returns the port at which it listens, for containers too.
func serveXDS(t *testing.T, node string, security credentials.TransportCredentials) string {
	t.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.Creds(security))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, xdsServer{node: node})
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return portOf(t, l.Addr().String())
}

// StreamAggregatedResources implements the service.
func (s xdsServer) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	first, err := stream.Recv()
	if err == nil && first.GetNode().GetId() == s.node {
		err = s.send(stream)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	return err
}

func (s xdsServer) send(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	limits, err := proto.Marshal(&xdsv3.RateLimitConfig{Name: "api", Domain: "api", Descriptors: []*xdsv3.RateLimitDescriptor{
		{Key: "user", RateLimit: &xdsv3.RateLimitPolicy{Unit: xdsv3.RateLimitUnit_RATE_LIMIT_UNIT_YEAR, RequestsPerUnit: 3}},
	}})
	if err != nil {
		return err
	}
	return stream.Send(&discoveryv3.DiscoveryResponse{VersionInfo: "1", Nonce: "1", TypeUrl: xds.TypeURL, Resources: []*anypb.Any{{TypeUrl: xds.TypeURL, Value: limits}}})
}
