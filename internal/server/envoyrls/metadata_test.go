package envoyrls_test

import (
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

func withMetadata(o *server.Options) { o.Responses.DynamicMetadata = true }

// metadataOf returns envoyproxy/ratelimit's metadata of a request, made from
// protobuf's own messages.
func metadataOf(t testing.TB, r *rlsv3.RateLimitRequest) *structpb.Struct {
	t.Helper()
	descriptors := make([]any, 0)
	for _, d := range r.GetDescriptors() {
		entries := make([]any, 0)
		for _, e := range d.GetEntries() {
			entries = append(entries, e.GetKey()+"="+e.GetValue())
		}
		one := map[string]any{"entries": entries}
		if d.GetHitsAddend() != nil {
			one["hitsAddend"] = float64(d.GetHitsAddend().GetValue())
		}
		if d.GetLimit() != nil {
			// protobuf makes its spaces random, so that nobody relies on them.
			one["limit"] = strings.ReplaceAll(prototext.MarshalOptions{}.Format(d.GetLimit()), "  ", " ")
		}
		descriptors = append(descriptors, one)
	}
	all := map[string]any{"domain": r.GetDomain(), "descriptors": descriptors}
	if r.GetHitsAddend() != 0 {
		all["hitsAddend"] = float64(r.GetHitsAddend())
	}
	s, err := structpb.NewStruct(all)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Envoy sends header bytes as they are; metadata is always text.
func TestDynamicMetadataIsAlwaysText(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit, func(o *server.Options) { o.Responses.DynamicMetadata = true })
	var answer []byte
	if err := d.Conn.Invoke(t.Context(), rlsv3.RateLimitService_ShouldRateLimit_FullMethodName,
		[]byte("\x0a\x03api\x12\x0b\x0a\x09\x0a\x04user\x12\x01\xff"), &answer, grpc.ForceCodec(servertest.RawCodec{})); err != nil {
		t.Fatal(err)
	}
	response := new(rlsv3.RateLimitResponse)
	if err := proto.Unmarshal(answer, response); err != nil {
		t.Fatal(err)
	}
	asked := response.GetDynamicMetadata().GetFields()["descriptors"].GetListValue().GetValues()[0].GetStructValue()
	if got := asked.GetFields()["entries"].GetListValue().GetValues()[0].GetStringValue(); got != "user=\uFFFD" {
		t.Errorf("the entry is told as %q", got)
	}
}
