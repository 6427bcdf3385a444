module github.com/ratelimitd/ratelimitd/client

go 1.26.0

require (
	github.com/felixge/httpsnoop v1.1.0
	github.com/ratelimitd/ratelimitd/internal/bucket v0.1.0
	github.com/ratelimitd/ratelimitd/proto v0.1.0
	go.opentelemetry.io/otel/trace v1.47.0
	go.uber.org/goleak v1.3.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260928230214-8a89bd6388cc
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.opentelemetry.io/otel v1.47.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)
