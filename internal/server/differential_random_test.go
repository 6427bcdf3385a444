package server_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// world is what one stream of requests is asked of: limits files, and the
// settings that go with them.
type world struct {
	modes          modelModes
	merge, lenient bool // how the files are read
	domains        map[string][]*modelNode
	files          map[string]string // text by name
}

// ask is a request and the moment of it, since the stream's beginning.
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
	// somePatterns lead, trail, stand inside, alone and twice.
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

// nodes draws a level of the tree, without a key and value twice.
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
		n.share = strings.Contains(n.value, "*") && d.one(2)
	}
	switch d.IntN(6) {
	case 0:
		n.detailed = true
	case 1:
		n.byValue = true
	}
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

// stream draws n requests. Most come at the moment of the one before.
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

// asks draws what a descriptor asks of its limit, which is that of n, if any.
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
		if n != nil && d.one(2) { // that of the rule
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

// entries draws a walk down the tree, which may go astray.
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
		entries = append(entries, entry(key, value))
		if n.limit != nil && d.one(2) {
			break
		}
		nodes = n.nodes
	}
	if d.one(40) {
		entries = append(entries, entry("a", "c"))
	}
	if d.one(60) {
		return nil
	}
	return entries
}

// writer writes limits files, in one of the many ways to say the same.
type writer struct {
	draw
	lenient bool
	b       strings.Builder
}

// member is a key and what is said of it, which begins behind the colon.
type member struct{ key, text string }

func (y *writer) file(domain string, nodes []*modelNode) string {
	members := []member{{"domain", " " + domain + "\n"}, {"descriptors", "\n" + y.list(nodes, "  ")}}
	if y.lenient {
		members = append(members, y.noise("unit", "value", "shadow_mode")...)
	}
	y.block(members, "", "")
	if y.lenient && y.one(4) {
		y.b.WriteString("---\ndomain: other\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
	}
	return y.b.String()
}

// block writes members in any order; first stands before the first of them.
func (y *writer) block(members []member, first, indent string) {
	for i, n := range y.Perm(len(members)) {
		m := members[n]
		if i == 0 {
			y.b.WriteString(first)
		} else {
			y.b.WriteString(indent)
		}
		y.b.WriteString(m.key + ":" + m.text)
	}
}

func (y *writer) list(nodes []*modelNode, indent string) string {
	in := &writer{draw: y.draw, lenient: y.lenient}
	for _, n := range nodes {
		in.block(in.node(n, indent+"  "), indent+"- ", indent+"  ")
	}
	return in.b.String()
}

func (y *writer) node(n *modelNode, indent string) []member {
	members := []member{{"key", " " + y.text(n.key) + "\n"}}
	add := func(key, text string) { members = append(members, member{key, text}) }
	switch {
	case n.value != "" && y.lenient && y.one(10):
		add("value", " x\n"+indent+"value: "+y.scalar(n.value)+"\n")
	case n.value != "":
		add("value", " "+y.scalar(n.value)+"\n")
	case y.one(4):
		add("value", pick(y.draw, " \"\"", " ~", "", " null")+"\n")
	}
	if n.limit != nil {
		add("rate_limit", " {"+y.limit(n.limit)+"}\n")
	}
	y.flags(n, indent, add)
	if n.metadata != nil {
		add("metadata", " "+y.value(n.metadata)+"\n")
	}
	if len(n.nodes) > 0 {
		add("descriptors", "\n"+y.list(n.nodes, indent+"  "))
	}
	if y.lenient {
		members = append(members, y.noise("domain", "unit", "requests_per_unit", "name")...)
	}
	return members
}

// flags adds the flags of a node. Where the reader is lenient there are some
// that mean nothing.
func (y *writer) flags(n *modelNode, indent string, add func(key, text string)) {
	hasLimit := n.limit != nil && !n.limit.unlimited
	for _, f := range []struct {
		key         string
		on, strange bool
	}{
		{"shadow_mode", n.shadow, !hasLimit},
		{"quota_mode", n.quota, !hasLimit || n.shadow},
		{"share_threshold", n.share, !hasLimit},
		{"detailed_metric", n.detailed, n.limit == nil},
		{"value_to_metric", n.byValue, n.limit == nil},
	} {
		switch {
		case f.key == "share_threshold" && !strings.Contains(n.value, "*"): // refused, there too
		case f.strange && !f.on:
			if y.lenient && y.one(15) {
				add(f.key, " true\n")
			}
		case y.lenient && y.one(15):
			add(f.key, fmt.Sprintf(" %t\n%s%s: %t\n", !f.on, indent, f.key, f.on))
		case f.on || y.one(10):
			add(f.key, fmt.Sprintf(" %t\n", f.on))
		}
	}
}

// noise is keys that mean nothing where they stand.
func (y *writer) noise(keys ...string) []member {
	if !y.one(5) {
		return nil
	}
	return []member{{pick(y.draw, keys...), pick(y.draw, " 1\n", " true\n", " hour\n")}}
}

func (y *writer) limit(l *modelLimit) string {
	var parts []string
	if l.unlimited {
		parts = append(parts, "unlimited: true")
	} else if y.one(10) {
		parts = append(parts, "unlimited: false")
	}
	if l.unlimited && y.lenient && y.one(3) {
		parts = append(parts, "requests_per_unit: 3")
	}
	if !l.unlimited {
		letters := strings.Split(l.unit, "")
		for i := range letters {
			if y.one(3) {
				letters[i] = strings.ToUpper(letters[i])
			}
		}
		if y.lenient && y.one(15) {
			parts = append(parts, "unit: fortnight, unit: "+strings.Join(letters, ""))
		} else {
			parts = append(parts, "unit: "+strings.Join(letters, ""))
		}
		if l.requests != 0 || !y.lenient || y.one(2) {
			parts = append(parts, "requests_per_unit: "+strconv.FormatUint(uint64(l.requests), 10))
		}
	}
	if l.name != "" {
		parts = append(parts, "name: "+l.name)
	}
	if l.replaces != nil {
		var names []string
		for _, n := range l.replaces {
			names = append(names, "{name: "+n+"}")
		}
		parts = append(parts, "replaces: ["+strings.Join(names, ", ")+"]")
	}
	if y.lenient && y.one(6) {
		parts = append(parts, pick(y.draw, "key: user", "shadow_mode: true", "value: x"))
	}
	y.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	return strings.Join(parts, ", ")
}

// scalar writes a value bare where YAML takes it for something that has the
// same text.
func (y *writer) scalar(s string) string {
	switch s {
	case "15", "true", "1.5", "0x1F", "2026-01-01", "alice", "c":
		if y.one(2) {
			return s
		}
	}
	return y.text(s)
}

func (y *writer) text(s string) string {
	if y.one(2) {
		return "'" + s + "'"
	}
	return strconv.Quote(s)
}

func (y *writer) value(v any) string {
	switch v := v.(type) {
	case nil:
		return pick(y.draw, "null", "~")
	case bool:
		return strconv.FormatBool(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case string:
		return y.text(v)
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, y.value(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	default:
		var parts []string
		m := v.(map[string]any)
		for _, k := range slices.Sorted(maps.Keys(m)) {
			parts = append(parts, y.text(k)+": "+y.value(m[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
}
