package envoyrls_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// world is the limits files and settings for one stream of requests.
type world struct {
	modes          modelModes
	merge, lenient bool // how the files are read
	domains        map[string][]*modelNode
	files          map[string]string // text by name
}

// ask is a request and its moment, counted from the stream's beginning.
type ask struct {
	at      time.Duration
	request *rlsv3.RateLimitRequest
}

// draw makes random worlds and streams.
type draw struct{ *rand.Rand }

func (d draw) one(in int) bool { return d.IntN(in) == 0 }

func pick[T any](d draw, from ...T) T { return from[d.IntN(len(from))] }

var (
	someKeys   = []string{"user", "path", "a", "a_b", "b", "key with space", "ключ"}
	someValues = []string{"alice", "b_c", "c", "15", "true", "1.5", "0x1F", "null", "2026-01-01", "/api/x", "/api/", "x|y=z", "#{}\\"}
	// somePatterns have a star in front, at the end, inside, alone and twice.
	somePatterns = []string{"*", "a*", "*c", "/api/*", "*i*", "b*c", "1*5", "**", "t*u*"}
	someNames    = []string{"n1", "n2", "n3", "n4"}
)

// world draws one.
func (d draw) world() *world {
	w := &world{
		modes: modelModes{
			shadow:   d.one(6),
			quota:    d.one(5),
			headers:  d.one(2),
			metadata: d.one(2),
		},
		merge:   d.one(3),
		lenient: d.one(3),
		domains: make(map[string][]*modelNode),
		files:   make(map[string]string),
	}
	for n := range 1 + d.IntN(2) {
		name := fmt.Sprintf("d%d", n)
		nodes := d.nodes(0)
		for len(nodes) == 0 {
			nodes = d.nodes(0)
		}
		w.domains[name] = nodes
		parts := [][]*modelNode{nodes}
		if w.merge {
			at := d.IntN(len(nodes) + 1)
			parts = [][]*modelNode{nodes[:at], nodes[at:]}
		}
		for i, part := range parts {
			if len(part) > 0 {
				y := &writer{draw: d, lenient: w.lenient}
				w.files[fmt.Sprintf("%s/%d%s", name, i, pick(d, ".yaml", ".yml"))] = y.file(name, part)
			}
		}
	}
	return w
}

// nodes draws a level of the tree. No key and value occur twice.
func (d draw) nodes(depth int) []*modelNode {
	var nodes []*modelNode
	seen := make(map[string]bool)
	for range d.IntN(6 - depth) {
		n := &modelNode{key: pick(d, someKeys...)}
		switch d.IntN(3) {
		case 0:
			n.value = pick(d, someValues...)
		case 1:
			n.value = pick(d, somePatterns...)
		}
		if seen[n.key+"\x00"+n.value] {
			continue
		}
		seen[n.key+"\x00"+n.value] = true
		if depth < 3 && d.one(2) {
			n.nodes = d.nodes(depth + 1)
		}
		if len(n.nodes) == 0 || d.one(2) {
			d.limit(n)
		}
		n.share = strings.Contains(n.value, "*") && d.one(2)
		n.byValue = d.one(4)
		nodes = append(nodes, n)
	}
	return nodes
}

func (d draw) limit(n *modelNode) {
	n.limit = &modelLimit{
		requests: pick[uint32](d, 1, 2, 3, 3, 4, 5, 5, 8, 10, 20, 100),
		unit:     pick(d, "second", "minute", "hour", "day", "week", "month", "year"),
	}
	if d.one(10) {
		n.limit.requests = pick[uint32](d, 0, 0, 1_000_000, math.MaxUint32)
	}
	if d.one(2) {
		n.limit.name = pick(d, someNames...)
	}
	if d.one(8) {
		n.limit.unlimited = true
	}
	if d.one(4) {
		for _, name := range someNames[:1+d.IntN(2)] {
			if name != n.limit.name {
				n.limit.replaces = append(n.limit.replaces, name)
			}
		}
	}
	if !n.limit.unlimited {
		n.shadow = d.one(5)
		n.quota = !n.shadow && d.one(3)
	}
	n.detailed = d.one(6)
	if d.one(2) {
		n.metadata = d.metadata(0)
	}
}

func (d draw) metadata(depth int) map[string]any {
	m := make(map[string]any)
	for range 1 + d.IntN(3) {
		m[pick(d, "tier", "cost", "more", "15")] = d.metadatum(depth)
	}
	return m
}

func (d draw) metadatum(depth int) any {
	switch d.IntN(8) {
	case 0:
		return nil
	case 1:
		return d.one(2)
	case 2:
		return float64(d.IntN(100))
	case 3:
		return 0.5
	case 4:
		return []any{"x", float64(d.IntN(3)), nil}
	case 5, 6:
		if depth < 2 {
			return d.metadata(depth + 1)
		}
	}
	return pick(d, "free", "15", "true", "a: b", "")
}

// stream draws n requests. Most come at the same moment as the one before.
func (d draw) stream(w *world, n int) []ask {
	steps := make([]ask, n)
	var at time.Duration
	for i := range steps {
		if d.one(4) {
			at += pick(d, time.Microsecond, time.Millisecond, 499*time.Millisecond, time.Second, 30*time.Second,
				time.Minute, 25*time.Minute, time.Hour, 24*time.Hour, 5*24*time.Hour, 40*24*time.Hour)
		}
		steps[i] = ask{at, d.request(w)}
	}
	return steps
}

func (d draw) request(w *world) *rlsv3.RateLimitRequest {
	r := &rlsv3.RateLimitRequest{Domain: fmt.Sprintf("d%d", d.IntN(len(w.domains)))}
	switch d.IntN(40) {
	case 0:
		r.Domain = "unknown"
	case 1:
		r.Domain = pick(d, "", "d0 ", "D0")
	}
	if d.one(4) {
		r.HitsAddend = pick[uint32](d, 1, 2, 2, 2, 3, 3, 4, 100, math.MaxUint32)
	}
	nodes := w.domains[r.Domain]
	if nodes == nil {
		nodes = w.domains["d0"]
	}
	for range pick(d, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5) {
		if len(r.Descriptors) > 0 && d.one(6) {
			equal := pick(d, r.Descriptors...)
			r.Descriptors = append(r.Descriptors, d.asks(equal.GetEntries(), match(nodes, equal.GetEntries())))
			continue
		}
		entries := d.entries(nodes)
		r.Descriptors = append(r.Descriptors, d.asks(entries, match(nodes, entries)))
	}
	return r
}

// asks draws what a descriptor says of its limit. n is the limit, if there is
// one.
func (d draw) asks(entries []*ratelimitv3.RateLimitDescriptor_Entry, n *modelNode) *ratelimitv3.RateLimitDescriptor {
	asked := &ratelimitv3.RateLimitDescriptor{Entries: entries}
	if d.one(3) {
		asked.HitsAddend = wrapperspb.UInt64(pick[uint64](d, 0, 0, 0, 1, 1, 2, 2, 3, 4))
		if d.one(20) {
			asked.HitsAddend = wrapperspb.UInt64(pick[uint64](d, 99, 1<<32, 1<<53, math.MaxUint64))
		}
	}
	asked.IsNegativeHits = d.one(8)
	if d.one(6) {
		asked.Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{
			RequestsPerUnit: pick[uint32](d, 0, 1, 2, 3, 4, 5, 7, 7, 9, 1000, math.MaxUint32),
			Unit:            typev3.RateLimitUnit(1 + d.IntN(6)),
		}
		if n != nil && d.one(2) { // the unit of the rule
			asked.Limit.Unit = typev3.RateLimitUnit(typev3.RateLimitUnit_value[strings.ToUpper(n.limit.unit)])
		} else if d.one(30) {
			asked.Limit.Unit = pick(d, typev3.RateLimitUnit_UNKNOWN, 99)
		}
		if d.one(3) {
			asked.Limit.UnitMultiplier = wrapperspb.UInt32(pick[uint32](d, 0, 1, 1, 1, 2, 2, 7, 30, 90, math.MaxUint32))
		}
	}
	return asked
}

// entries draws a walk down the tree. It may leave the tree.
func (d draw) entries(nodes []*modelNode) []*ratelimitv3.RateLimitDescriptor_Entry {
	var entries []*ratelimitv3.RateLimitDescriptor_Entry
	for len(nodes) > 0 {
		n := pick(d, nodes...)
		key, value := n.key, n.value
		switch {
		case strings.Contains(value, "*"):
			for strings.Contains(value, "*") {
				value = strings.Replace(value, "*", pick(d, "", "a", "b"), 1)
			}
		case value == "" || d.one(15):
			value = pick(d, someValues[:4]...)
		}
		if d.one(40) {
			value = pick(d, "", "*", n.value)
		}
		if d.one(40) {
			key = pick(d, someKeys...)
		}
		entries = append(entries, servertest.Entry(key, value))
		if n.limit != nil && d.one(2) {
			break
		}
		nodes = n.nodes
	}
	if d.one(40) {
		entries = append(entries, servertest.Entry("a", "c"))
	}
	if d.one(60) {
		return nil
	}
	return entries
}
