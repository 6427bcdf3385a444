package trace

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

const (
	// maxAllHints bounds the hints about one request, though each subject of a Reacher
	// may still have one. maxHints bounds those about one descriptor besides those that
	// it gives together with others.
	maxAllHints, maxHints = 200, 6
	// maxHintText is how many bytes of entries are tried in other orders, and together
	// with those of other descriptors.
	maxHintText = 4096
	// maxOrdered is how many entries are tried in other orders.
	maxOrdered = 6
	// maxTogether is how many descriptors are tried together.
	maxTogether = 8
)

// noDomains is why a domain is unknown if there are none, as after an empty configuration
// from an xDS server.
const noDomains = "the limits in force have no domain at all"

// NoDomain says that there is no domain of this name, and which one may have been meant.
func NoDomain(r *rules.Set, name string) string {
	if len(r.Domains()) == 0 {
		return fmt.Sprintf("found %s; %s", yamlfile.Quote(name), noDomains)
	}
	text := fmt.Sprintf("found %s; there is none of this name", yamlfile.Quote(name))
	if near := yamlfile.Nearest(name, domainNames(r)); near != "" {
		text += " (" + spelling.ShellWord(near) + "?)"
	}
	return text
}

func domainNames(r *rules.Set) []string {
	names := make([]string, len(r.Domains()))
	for i, d := range r.Domains() {
		names[i] = d.Name
	}
	return names
}

// unknownDomain is the hint about a domain that is in no file.
func unknownDomain(r *rules.Set, name string) string {
	text := "no limits have the domain " + yamlfile.Quote(name) + ", so nothing is limited"
	if len(r.Domains()) == 0 {
		return text + "; " + noDomains
	}
	for _, d := range r.Domains() {
		if how := Almost(name, d.Name); how != "" {
			return fmt.Sprintf("%s; %s (%s) differs from it %s", text, yamlfile.Quote(d.Name), yamlfile.FileLine(d.File, d.Line), how)
		}
	}
	if near := yamlfile.Nearest(name, domainNames(r)); near != "" {
		d := r.Domain(near)
		text += fmt.Sprintf("; did you mean %s (%s)?", yamlfile.Quote(near), yamlfile.FileLine(d.File, d.Line))
	}
	return text
}

// hint returns the hints about one descriptor.
func (t *tracer) hint(w *walk, rule *rules.Rule) (hints []string) {
	if t.hints <= 0 || t.looks <= 0 {
		return nil
	}
	if rule != nil && rule.ShadowMode {
		hints = append(hints, "the rule has shadow_mode, so it never denies")
	}
	hints = append(hints, t.almostTaken(w)...)
	hints = append(hints, emptyValues(w)...)
	if rule == nil {
		hints = append(hints, t.unmatched(w, hasRule)...)
	}
	return t.spend(hints)
}

// spend returns the hints for which there is room, and uses up that room.
func (t *tracer) spend(hints []string) []string {
	hints = hints[:min(len(hints), maxHints, t.hints)]
	t.hints -= len(hints)
	return hints
}

// unmatched returns the hints about entries that do not lead to a wanted descriptor of
// the file.
func (t *tracer) unmatched(w *walk, wanted func(*rules.Node) bool) (hints []string) {
	if len(w.entries) == 0 {
		return []string{"the descriptor has no entries, so no rule can match it"}
	}
	if order := t.otherOrder(w.entries, wanted); order != "" {
		hints = append(hints, order)
	}
	last := w.last(t.domain.Root())
	if len(w.path) == 0 && !last.HasBelow() {
		return []string{"the domain " + yamlfile.Quote(t.domain.Name) + " has no rules"}
	}
	if w.isEnd() {
		return append(hints, t.beginning(w, last)...)
	}
	if last.Rule() != nil {
		hints = append(hints, fmt.Sprintf("%s has a limit (%s), but the descriptor goes on with %s, and a rule is only for descriptors of its own length; send %s as a descriptor of its own",
			words.Entries(w.entries[:len(w.path)]), t.where(last), words.Entries(w.entries[len(w.path):len(w.path)+1]), words.Pasted(w.entries[:len(w.path)]...)))
	}
	e := w.entries[len(w.path)]
	below := t.keysOf(last)
	if below == nil {
		return hints
	}
	if below.first[e.Key] == nil {
		return append(hints, t.unknownKey(below, e)...)
	}
	return append(hints, t.unknownValue(last, e)...)
}

// beginning is the hint about a descriptor that ends before a limit.
func (t *tracer) beginning(w *walk, last *rules.Node) []string {
	if !last.HasBelow() || !t.domain.LeadsToRule(last) {
		return nil
	}
	keys := t.firstKeys(last)
	if len(keys) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s is only the beginning of a rule, and has no limit itself (%s): the rule goes on with the key %s",
		words.Entries(w.entries), t.where(last), strings.Join(keys, " or "))}
}

// firstKeys returns the first keys one level below, in the order of the file.
func (t *tracer) firstKeys(n *rules.Node) []string {
	const maxKeys = 3
	below := t.keysOf(n)
	if below == nil || !t.look(len(below.names)) {
		return nil
	}
	nodes := slices.SortedFunc(maps.Values(below.first), (*rules.Node).Compare)
	var keys []string
	for _, child := range nodes[:min(maxKeys, len(nodes))] {
		keys = append(keys, words.Key(child.Entry().Key))
	}
	return keys
}

// unknownKey returns the hints about an entry whose key is not among these keys of the
// descriptors below n.
func (t *tracer) unknownKey(below *keysBelow, e bucket.Entry) []string {
	if !t.look(len(below.names)) {
		return nil
	}
	for _, key := range below.names {
		if how := Almost(e.Key, key); how != "" {
			return []string{fmt.Sprintf("no descriptor here has the key %s; %s (%s) differs from it %s", words.Key(e.Key), words.Key(key), t.where(below.first[key]), how)}
		}
	}
	if key := yamlfile.Nearest(e.Key, below.names); key != "" {
		return []string{fmt.Sprintf("no descriptor here has the key %s; did you mean %s (%s)?", words.Key(e.Key), words.Key(key), t.where(below.first[key]))}
	}
	for _, key := range below.names {
		deeper := below.first[key]
		if keys := t.keysOf(deeper); keys != nil && keys.first[e.Key] != nil {
			return []string{fmt.Sprintf("no descriptor here has the key %s, but one below %s has (%s): the descriptor would have to name that before it",
				words.Key(e.Key), words.Descriptor(deeper.Entry()), t.where(deeper))}
		}
	}
	return nil
}

// unknownValue returns the hints about an entry whose key some descriptors below n have.
func (t *tracer) unknownValue(n *rules.Node, e bucket.Entry) []string {
	var best *rules.Node
	if t.look(n.ExactCount()) {
		best = t.nearestValue(n, e)
	}
	if best != nil {
		filed := best.Entry().Value
		if how := Almost(e.Value, filed); how != "" {
			return []string{fmt.Sprintf("%s matches nothing: did you mean %s (%s), which differs %s?", words.Entries([]bucket.Entry{e}), words.Descriptor(best.Entry()), t.where(best), how)}
		}
		return []string{fmt.Sprintf("%s begins with %s (%s), which matches that very value alone: to match what begins with it, its value needs a * at the end",
			words.Entries([]bucket.Entry{e}), words.Descriptor(best.Entry()), t.where(best))}
	}
	if k := n.Key(e.Key); k != nil {
		return t.regularExpression(k, e)
	}
	return nil
}

// nearestValue returns the descriptor below n whose exact value is almost that of the
// entry, otherwise the one with the longest value that the entry's begins with, or nil.
func (t *tracer) nearestValue(n *rules.Node, e bucket.Entry) *rules.Node {
	const shortest = 2 // "/" begins too many values
	var best *rules.Node
	for child := range n.AllExact {
		at := child.Entry()
		if at.Key != e.Key {
			continue
		}
		switch isAlmost := Almost(e.Value, at.Value) != ""; {
		case !isAlmost && (len(at.Value) < shortest || !strings.HasPrefix(e.Value, at.Value)):
		case best == nil:
			best = child
		default:
			bestIsAlmost := Almost(e.Value, best.Entry().Value) != ""
			if isAlmost && !bestIsAlmost ||
				isAlmost == bestIsAlmost && (!isAlmost && len(at.Value) > len(best.Entry().Value) || isAlmost && child.Compare(best) < 0) {
				best = child
			}
		}
	}
	return best
}

// regularExpression is the hint about a pattern that would match if characters other than
// * were special.
func (t *tracer) regularExpression(k *rules.Key, e bucket.Entry) []string {
	for _, child := range k.Patterns() {
		if !t.look(1) || len(e.Value) > maxHintText {
			return nil
		}
		pattern := child.Entry().Value
		meant := strings.TrimSuffix(strings.TrimPrefix(strings.ReplaceAll(pattern, ".*", "*"), "^"), "$")
		if meant != pattern && matches(meant, e.Value) {
			return []string{fmt.Sprintf("%s does not match %s (%s), which is no regular expression: * alone stands for other characters; did you mean %s?",
				words.Entries([]bucket.Entry{e}), words.Descriptor(child.Entry()), t.where(child), shownValue(meant))}
		}
	}
	return nil
}

// almostTaken returns the hints about entries that match a pattern or a bare key, and
// almost match an exact value. A single differing letter is not enough: names of
// customers often differ by that.
func (t *tracer) almostTaken(w *walk) (hints []string) {
	up := t.domain.Root()
	for i, n := range w.path {
		if !n.IsExact() {
			if !t.look(up.ExactCount()) {
				up = n
				continue
			}
			e := w.entries[i]
			var found *rules.Node
			for child := range up.AllExact {
				at := child.Entry()
				if at.Key != e.Key || trimmed(at.Value) == "" {
					continue
				}
				if how := Almost(e.Value, at.Value); how != "" && how != byOneLetter && (found == nil || child.Compare(found) < 0) {
					found = child
				}
			}
			if found != nil {
				hints = append(hints, fmt.Sprintf("%s matches %s (%s) and not %s (%s), from which it differs %s",
					words.Entries([]bucket.Entry{e}), words.Descriptor(n.Entry()), t.where(n), words.Descriptor(found.Entry()), t.where(found), Almost(e.Value, found.Entry().Value)))
			}
		}
		up = n
	}
	return hints
}

// emptyValues returns the hints about entries without a value.
func emptyValues(w *walk) (hints []string) {
	for i, e := range w.entries {
		if e.Value != "" {
			continue
		}
		what := "which no exact value and no pattern with text matches"
		if i < len(w.path) && w.path[i].Entry().Value == "" {
			what = "so all who send none share a limit"
		}
		return []string{fmt.Sprintf("the value of %s is empty, as where a header is missing, %s", words.Key(e.Key), what)}
	}
	return nil
}

// otherOrder is the hint about entries that in another order lead to a wanted descriptor
// of the file, or "".
func (t *tracer) otherOrder(entries []bucket.Entry, wanted func(*rules.Node) bool) string {
	if len(entries) < 2 || len(entries) > maxOrdered || textOf(entries) > maxHintText {
		return ""
	}
	order := make([]bucket.Entry, 0, len(entries))
	used := make([]bool, len(entries))
	var search func(n *rules.Node) *rules.Node
	search = func(n *rules.Node) *rules.Node {
		if len(order) == len(entries) {
			if !wanted(n) {
				return nil
			}
			return n
		}
		for i := range entries {
			if used[i] {
				continue
			}
			if !t.look(1) {
				return nil
			}
			next := n.Next(&entries[i])
			if next == nil {
				continue
			}
			used[i], order = true, append(order, entries[i])
			if found := search(next); found != nil {
				return found
			}
			used[i], order = false, order[:len(order)-1]
		}
		return nil
	}
	found := search(t.domain.Root())
	if found == nil {
		return ""
	}
	return fmt.Sprintf("the entries match in another order, as %s (%s): their order has to be that of the rule", words.Pasted(order...), t.where(found))
}

// hintTogether adds the hints about descriptors that would match with the entries of
// another, and about entries that would each match by itself.
func (t *tracer) hintTogether(descriptors [][]bucket.Entry, traces []Search) {
	for i := range traces {
		if traces[i].Rule != nil || t.hints <= 0 {
			continue
		}
		for _, text := range []string{t.together(descriptors, i), t.apart(descriptors[i])} {
			if text != "" && t.hints > 0 {
				traces[i].Hints = append(traces[i].Hints, text)
				t.hints--
			}
		}
	}
}

// together is the hint about descriptor i if it would match with the entries of another
// before or after its own, or "".
func (t *tracer) together(descriptors [][]bucket.Entry, i int) string {
	if len(descriptors) > maxTogether {
		return ""
	}
	for j := range descriptors {
		if j == i || textOf(descriptors[i])+textOf(descriptors[j]) > maxHintText {
			continue
		}
		for _, both := range [][]bucket.Entry{slices.Concat(descriptors[i], descriptors[j]), slices.Concat(descriptors[j], descriptors[i])} {
			if len(descriptors[j]) == 0 || len(both) == len(descriptors[j]) {
				continue
			}
			if rule := t.domain.Match(both); rule != nil {
				return fmt.Sprintf("one descriptor with the entries of descriptors %d and %d would match %s (%s): several descriptors are looked for one by one",
					min(i, j), max(i, j), yamlfile.Shorten(rule.Path()), yamlfile.FileLine(rule.File, rule.Line))
			}
		}
	}
	return ""
}

// apart is the hint about the entries of one descriptor if each would match by itself, or
// "".
func (t *tracer) apart(entries []bucket.Entry) string {
	if len(entries) < 2 || len(entries) > maxOrdered || textOf(entries) > maxHintText {
		return ""
	}
	var paths []string
	for i := range entries {
		rule := t.domain.Match(entries[i : i+1])
		if rule == nil {
			return ""
		}
		paths = append(paths, yamlfile.Shorten(rule.Path()))
	}
	return "each entry has a rule by itself, " + yamlfile.Commas(paths) + ": to ask for all of them, send a descriptor for each"
}

// hasRule reports whether a descriptor of the file has a limit.
func hasRule(n *rules.Node) bool { return n.Rule() != nil }

// where returns the file and line of a descriptor.
func (t *tracer) where(n *rules.Node) string { return yamlfile.FileLine(t.domain.PositionOf(n)) }

func textOf(entries []bucket.Entry) int {
	n := 0
	for i := range entries {
		n += len(entries[i].Key) + len(entries[i].Value)
	}
	return n
}
