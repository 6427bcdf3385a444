package integration

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

const (
	shouldRateLimit = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	takeOne         = "/ratelimit.v1.RateLimitService/Take"
	takeMany        = "/ratelimit.v1.RateLimitService/TakeMany"
	takeStream      = "/ratelimit.v1.RateLimitService/TakeStream"
	giveBack        = "/ratelimit.v1.RateLimitService/GiveBack"
	settleOne       = "/ratelimit.v1.RateLimitService/Settle"
	healthCheck     = "/grpc.health.v1.Health/Check"
	healthWatch     = "/grpc.health.v1.Health/Watch"
	reflects        = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
)

// By default the daemon reads slightly larger messages.
const largeMessage = 1_090_000

func messageAttackers() []attacker {
	field := func(number byte, content string) string { // in a message, with a length of up to 2^21-1
		n := len(content)
		return string([]byte{number<<3 | 2, byte(n&0x7f | 0x80), byte(n>>7&0x7f | 0x80), byte(n >> 14)}) + content
	}
	empties := strings.Repeat("\x12\x00", largeMessage/2)
	entries := "\x0a\x01x" + field(2, strings.Repeat("\x0a\x00", largeMessage/2))
	unknown := strings.Repeat("\xa2\x06\x00", largeMessage/3)
	groups := strings.Repeat("\x0b", largeMessage/2) + strings.Repeat("\x0c", largeMessage/2)
	takes := strings.Repeat("\x0a\x00", largeMessage/2)
	again := strings.Repeat("\x12\x07\x0a\x05\x0a\x01k\x12\x00", largeMessage/9)
	return []attacker{
		{"grpc messages of empty descriptors", callAll(empties, shouldRateLimit, takeOne, settleOne)},
		{"grpc messages of empty entries", callAll(entries, shouldRateLimit, takeOne)},
		{"grpc messages of unknown fields", callAll(unknown, shouldRateLimit, takeOne, giveBack, settleOne, healthCheck, healthWatch, reflects)},
		{"grpc messages of groups", callAll(groups, shouldRateLimit, takeOne, giveBack, healthCheck, reflects)},
		{"grpc messages of many takes", callAll(takes, takeMany, takeStream)},
		{"grpc messages of a thousand takes", callAll(takes[:2000], takeMany, takeStream)},
		{"grpc messages of takes that repeat", callAll(field(1, again), takeMany, giveBack)},
		{"grpc give-backs of empty descriptors", callAll(field(1, empties), giveBack)},
		{"grpc give-backs of moments", callAll(field(2, strings.Repeat("\x01", largeMessage)), giveBack)},
		{"grpc messages in gzip", callGzip},
		{"takes whose callers go", callAndGo(string(manyTakes(1000)), takeMany)},
		{"reports whose callers go", callAndGo(string(manyReports(90)), shouldRateLimit)},
		{"give-backs whose callers go", callAndGo(empties[:60_000], giveBack)},
		{"settlements whose callers go", callAndGo(string(manySettlements(90)), settleOne)},
		{"takes of many descriptors", callAll(string(wideTakes(400)), takeMany)},
		{"takes of many descriptors whose callers go", callAndGo(string(wideTakes(400)), takeMany)},
		{"streamed takes of many descriptors", callAll(string(wideStreamMessage(400)), takeStream)},
		{"takes of who is paused", callAll(string(pausedTakes(1000)), takeMany)},
	}
}

// manySettlements is a request that settles an id of this many users.
func manySettlements(users int) []byte {
	r := &ratelimitv1.SettleRequest{Domain: "api", Id: "x"}
	for i := range users {
		r.Descriptors = append(r.Descriptors, &ratelimitv1.Descriptor{
			Entries: []*ratelimitv1.Entry{{Key: "user", Value: fmt.Sprintf("user-%d", i)}}, Cost: proto.Uint64(1),
		})
	}
	return marshal(r)
}

// wideTakes is a message of n takes, each with as many descriptors as are allowed, which
// have several limits each.
func wideTakes(n int) []byte {
	r := new(ratelimitv1.TakeManyRequest)
	for range n {
		r.Takes = append(r.Takes, wideTake())
	}
	return marshal(r)
}

// pausedTakes is a message of n takes for two thirds as many logins: it pauses half of them,
// and the others when it is sent again.
func pausedTakes(n int) []byte {
	r := new(ratelimitv1.TakeManyRequest)
	for i := range n {
		r.Takes = append(r.Takes, &ratelimitv1.TakeRequest{
			Domain: "api", Descriptors: []*ratelimitv1.Descriptor{{Entries: []*ratelimitv1.Entry{{Key: "login", Value: fmt.Sprint(i * 2 / 3)}}}},
		})
	}
	return marshal(r)
}

func wideStreamMessage(n int) []byte {
	r := new(ratelimitv1.TakeStreamRequest)
	for i := range n {
		r.Takes = append(r.Takes, &ratelimitv1.NumberedTake{Number: uint64(i), Take: wideTake()})
	}
	return marshal(r)
}

func wideTake() *ratelimitv1.TakeRequest {
	r := &ratelimitv1.TakeRequest{Domain: "api"}
	for i := range 100 {
		r.Descriptors = append(r.Descriptors, &ratelimitv1.Descriptor{Entries: []*ratelimitv1.Entry{{Key: "user", Value: fmt.Sprint("user-", i)}}})
	}
	return r
}

func marshal(m proto.Message) []byte {
	out, err := proto.Marshal(m)
	if err != nil {
		panic(err) // the messages are those of attackers
	}
	return out
}

// manyReports is a request that says for this many users what they used. It is
// charged though its caller has gone.
func manyReports(users int) []byte {
	r := new(rlsv3.RateLimitRequest)
	for i := range users {
		d := request("api", 1, fmt.Sprintf("tokens=user-%d", i)).GetDescriptors()[0]
		d.HitsAddend = wrapperspb.UInt64(1)
		r.Descriptors = append(r.Descriptors, d)
	}
	r.Domain = "api"
	return marshal(r)
}

// callAll calls with one message and reads the answers.
func callAll(message string, paths ...string) func(ctx context.Context, v *target) {
	return func(ctx context.Context, v *target) {
		together(5, func() {
			again(ctx, 200*time.Millisecond, func() {
				h, err := dialHTTP2(ctx, v.grpc, 1<<20, true)
				if err != nil {
					return
				}
				defer h.conn.Close()
				for range 20 {
					for _, p := range paths {
						stream := h.open(p)
						sendAll(ctx, h, stream, grpcMessage([]byte(message)), 16<<10, true)
					}
					if h.isEnded() || ctx.Err() != nil {
						return
					}
				}
			})
		})
	}
}

// sendAll sends as much as the other side allows, and waits for that only a
// moment.
func sendAll(ctx context.Context, h *rawHTTP2, stream uint32, data []byte, frame int, end bool) {
	sent := 0
	for wait := 0; sent < len(data) && wait < 10 && ctx.Err() == nil && !h.isEnded(); {
		n := min(h.mayStill(stream, sent), len(data)-sent)
		if n <= 0 {
			_ = h.out.Flush()
			time.Sleep(5 * time.Millisecond)
			wait++
			continue
		}
		if h.send(stream, data[sent:sent+n], frame, end && sent+n == len(data)) != nil {
			return
		}
		sent += n
		wait = 0
	}
	_ = h.out.Flush()
}

// callAndGo makes as many calls on a connection as the other side allows, and
// leaves before the answers.
func callAndGo(message, path string) func(ctx context.Context, v *target) {
	return func(ctx context.Context, v *target) {
		together(5, func() {
			again(ctx, 10*time.Millisecond, func() {
				h, err := dialHTTP2(ctx, v.grpc, 1<<20, true)
				if err != nil {
					return
				}
				defer h.conn.Close()
				for range 1000 {
					sendAll(ctx, h, h.open(path), grpcMessage([]byte(message)), 16<<10, true)
					if h.isEnded() || ctx.Err() != nil {
						return
					}
				}
			})
		})
	}
}

func callGzip(ctx context.Context, v *target) {
	var message bytes.Buffer
	z := gzip.NewWriter(&message)
	_, _ = z.Write(make([]byte, largeMessage))
	_ = z.Close()
	compressed := grpcMessage(message.Bytes())
	compressed[0] = 1
	again(ctx, 100*time.Millisecond, func() {
		h, err := dialHTTP2(ctx, v.grpc, 1<<20, true)
		if err != nil {
			return
		}
		defer h.conn.Close()
		for range 1000 {
			stream := h.open(shouldRateLimit, hpack.HeaderField{Name: "grpc-encoding", Value: "gzip"})
			_ = h.send(stream, compressed, 16<<10, true)
		}
		_ = h.out.Flush()
		time.Sleep(50 * time.Millisecond)
	})
}
