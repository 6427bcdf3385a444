package stream_test

import (
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// raw passes a server's messages in their bytes.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// serveRaw runs a server that answers the first message of each stream with these
// bytes.
func serveRaw(t *testing.T, answer []byte) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(func(_ any, rpc grpc.ServerStream) error {
		var asked []byte
		if err := rpc.RecvMsg(&asked); err != nil {
			return err
		}
		if err := rpc.SendMsg(&answer); err != nil {
			return err
		}
		<-rpc.Context().Done()
		return nil
	}))
	var served sync.WaitGroup
	served.Go(func() { _ = g.Serve(l) })
	t.Cleanup(func() { g.Stop(); served.Wait() })
	return l.Addr().String()
}

func TestAnswerThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	field := func(number protowire.Number, content ...byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
	}
	// of is a TakeStreamResponse with this TakeResult for the first take.
	of := func(result ...byte) []byte { return field(1, append([]byte{1 << 3, 1}, field(2, result...)...)...) }
	cut := byte(0xff) // a number that goes on
	for name, test := range map[string]struct {
		answer []byte
		code   codes.Code
		text   string
	}{
		"no message":                       {[]byte{cut}, codes.Unavailable, "the daemon's answer"},
		"a numbered result is cut":         {field(1, cut), codes.Unavailable, "the daemon's answer"},
		"a result is cut":                  {of(cut), codes.Unknown, "the daemon's answer"},
		"an error is cut":                  {of(field(2, cut)...), codes.Unknown, "the daemon's answer"},
		"fields that are not known":        {append(field(15, 1), of(append(field(15, 1), field(1, 1<<3, 1)...)...)...), codes.OK, ""},
		"a number of another kind":         {append(field(1, field(1, 1)...), of(field(1, 1<<3, 1)...)...), codes.OK, ""},
		"an answer before one that is cut": {append(of(field(1, 1<<3, 1)...), cut), codes.OK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ok, err := ask(t, connect(t, serveRaw(t, test.answer)), "x")
			if ok != (test.code == codes.OK) || status.Code(err) != test.code {
				t.Errorf("found %v, %v", ok, err)
			}
			if err != nil && !strings.Contains(err.Error(), test.text) {
				t.Errorf("want an error with %q, got %v", test.text, err)
			}
		})
	}
}
