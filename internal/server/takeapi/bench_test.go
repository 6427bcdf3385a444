package takeapi_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// BenchmarkTakeStream answers messages of a hundred takes each, one after the other,
// through a port. The caller neither makes the messages nor reads the answers.
func BenchmarkTakeStream(b *testing.B) {
	const takes = 100
	d := servertest.Start(b, servertest.BenchLimits)
	take := &ratelimitv1.TakeRequest{Domain: "api", Descriptors: []*ratelimitv1.Descriptor{{
		Entries: []*ratelimitv1.Entry{{Key: "user", Value: "alice"}, {Key: "route", Value: "/orders"}},
	}}}
	message, err := proto.Marshal(servertest.Numbered(1, slices.Repeat([]*ratelimitv1.TakeRequest{take}, takes)...))
	if err != nil {
		b.Fatal(err)
	}
	s, err := d.Conn.NewStream(b.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		ratelimitv1.RateLimitService_TakeStream_FullMethodName, grpc.ForceCodec(servertest.RawCodec{}))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var answer []byte
	for b.Loop() {
		if err := s.SendMsg(message); err != nil {
			b.Fatal(err)
		}
		if err := s.RecvMsg(&answer); err != nil {
			b.Fatal(err)
		}
	}
	var response ratelimitv1.TakeStreamResponse
	if err := proto.Unmarshal(answer, &response); err != nil || len(response.GetResults()) != takes {
		b.Fatal(len(response.GetResults()), err)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*takes), "ns/take")
}
