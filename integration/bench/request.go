package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
)

// blank is where a marshalled request's value stands: seven digits.
const blank = "#######"

// request is a marshalled request whose value can be changed in place.
type request struct {
	bytes []byte
	at    []int // where the values begin
}

// newRequest returns a request with so many descriptors of one entry each.
func newRequest(key string, descriptors int) request {
	m := &rlsv3.RateLimitRequest{Domain: domain}
	for i := range descriptors {
		m.Descriptors = append(m.Descriptors, descriptor(descriptorKey(key, i), blank))
	}
	return blanksOf(marshal(m))
}

// blanksOf finds where the values stand in a marshalled message.
func blanksOf(text []byte) request {
	r := request{bytes: text}
	for at := 0; ; at += len(blank) {
		next := bytes.Index(text[at:], []byte(blank))
		if next < 0 {
			return r
		}
		at += next
		r.at = append(r.at, at)
	}
}

func descriptor(key, value string) *ratelimitv3.RateLimitDescriptor {
	return &ratelimitv3.RateLimitDescriptor{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
}

// value is what set writes for n.
func value(n int) string { return fmt.Sprintf("%07d", n) }

// set makes n, below ten million, the value of every descriptor.
func (r *request) set(n int) {
	for i := len(blank) - 1; i >= 0; i-- {
		digit := byte('0' + n%10)
		n /= 10
		for _, at := range r.at {
			r.bytes[at+i] = digit
		}
	}
}

// renew gives the request bytes of its own, where those it had may still be on
// their way.
func (r *request) renew() { r.bytes = bytes.Clone(r.bytes) }

// marshal is for messages that this package made, which can be marshalled.
func marshal(m proto.Message) []byte {
	text, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return text
}

// keys is how callers pick their key.
type keys string

const (
	even      keys = "even"      // any of all, equally often
	zipf      keys = "zipf"      // the n-th in proportion to 1 / n^1.1
	hotUnder  keys = "hot-under" // all the same one, under its limit
	hotOver   keys = "hot-over"  // all the same one, over its limit
	zipfPower      = 1.1
)

// picker returns a function that picks a number below population, or only
// hot.
func (k keys) picker(seed uint64, population, hot int) func() int {
	random := rand.New(rand.NewPCG(seed, 1))
	switch k {
	case even:
		return func() int { return random.IntN(population) }
	case zipf:
		z := rand.NewZipf(random, zipfPower, 1, uint64(population-1))
		return func() int { return int(z.Uint64()) }
	default:
		return func() int { return hot }
	}
}
