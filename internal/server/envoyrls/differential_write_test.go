package envoyrls_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// writer writes limits files. It chooses at random among the ways to say the
// same.
type writer struct {
	draw
	lenient bool
	b       strings.Builder
}

// member is a key and its text from behind the colon.
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

// block writes members in any order. The first member follows first.
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

// flags adds the flags of a node. For a lenient reader it adds some that mean
// nothing.
func (y *writer) flags(n *modelNode, indent string, add func(key, text string)) {
	hasLimit := n.limit != nil && !n.limit.unlimited
	for _, f := range []struct {
		key         string
		on, strange bool
	}{
		{"shadow_mode", n.shadow, !hasLimit},
		{"quota_mode", n.quota, !hasLimit || n.shadow},
		{"share_threshold", n.share, false},
		{"detailed_metric", n.detailed, n.limit == nil},
		{"value_to_metric", n.byValue, false},
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

// noise returns keys that mean nothing at their place.
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

// scalar writes a value without quotes if YAML reads the same text.
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
