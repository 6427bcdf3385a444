package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

const (
	// maxAllHints bounds the hints about one request, and maxHints those about one
	// descriptor beside those that it gives together with others.
	maxAllHints, maxHints = 200, 6
	// maxHintText is how many bytes of entries are tried in other orders, and
	// together with those of other descriptors.
	maxHintText = 4096
	// maxOrdered is how many entries are tried in other orders.
	maxOrdered = 6
	// maxTogether is how many descriptors are tried together.
	maxTogether = 8
)

// noDomains is why a domain is unknown where there are none, as after an empty
// configuration of an xDS server.
const noDomains = "the limits in force have no domain at all"

// NoDomain says that there is no domain of this name, and which one may be meant.
func (r *Rules) NoDomain(name string) string {
	if len(r.sorted) == 0 {
		return fmt.Sprintf("found %s; %s", yamlfile.Quote(name), noDomains)
	}
	text := fmt.Sprintf("found %s; there is none of this name", yamlfile.Quote(name))
	if near := yamlfile.Nearest(name, r.domainNames()); near != "" {
		text += " (" + near + "?)"
	}
	return text
}

func (r *Rules) domainNames() []string {
	names := make([]string, len(r.sorted))
	for i, d := range r.sorted {
		names[i] = d.Name
	}
	return names
}

// unknownDomain is the hint about a domain that no file has.
func (r *Rules) unknownDomain(name string) string {
	text := "no limits have the domain " + yamlfile.Quote(name) + ", so nothing is limited"
	if len(r.sorted) == 0 {
		return text + "; " + noDomains
	}
	for _, d := range r.sorted {
		if how := Almost(name, d.Name); how != "" {
			return fmt.Sprintf("%s; %s (%s) differs from it %s", text, yamlfile.Quote(d.Name), lineOf(d.File, d.Line), how)
		}
	}
	if near := yamlfile.Nearest(name, r.domainNames()); near != "" {
		d := r.domains[near]
		text += fmt.Sprintf("; did you mean %s (%s)?", yamlfile.Quote(near), lineOf(d.File, d.Line))
	}
	return text
}

// hint returns the hints about one descriptor.
func (t *tracer) hint(w *walk, rule *Rule) (hints []string) {
	if t.hints <= 0 || t.looks <= 0 {
		return nil
	}
	if rule != nil && rule.ShadowMode {
		hints = append(hints, "the rule has shadow_mode, so it never denies")
	}
	hints = append(hints, t.almostTaken(w)...)
	hints = append(hints, emptyValues(w)...)
	if rule == nil {
		hints = append(hints, t.unmatched(w, (*node).hasRule)...)
	}
	return t.spend(hints)
}

// spend returns the hints for which there is room, and takes that.
func (t *tracer) spend(hints []string) []string {
	hints = hints[:min(len(hints), maxHints, t.hints)]
	t.hints -= len(hints)
	return hints
}

// unmatched returns the hints about entries that do not lead to a descriptor of the
// file that is wanted.
func (t *tracer) unmatched(w *walk, wanted func(*node) bool) (hints []string) {
	if len(w.entries) == 0 {
		return []string{"the descriptor has no entries, so no rule can match it"}
	}
	if order := t.otherOrder(w.entries, wanted); order != "" {
		hints = append(hints, order)
	}
	last := w.last(t.domain.root)
	if len(w.path) == 0 && !last.hasBelow() {
		return []string{"the domain " + yamlfile.Quote(t.domain.Name) + " has no rules"}
	}
	if w.isEnd() {
		return append(hints, t.beginning(w, last)...)
	}
	if last.rule != nil {
		hints = append(hints, fmt.Sprintf("%s has a limit (%s), but the descriptor goes on with %s, and a rule is only for descriptors of its own length; send %s as a descriptor of its own",
			ShowEntries(w.entries[:len(w.path)]), t.where(last), shownEntry(w.entries[len(w.path)]), ShowEntries(w.entries[:len(w.path)])))
	}
	e := w.entries[len(w.path)]
	if !t.hasKey(last, e.Key) {
		return append(hints, t.unknownKey(last, e)...)
	}
	return append(hints, t.unknownValue(last, e)...)
}

// beginning is the hint about a descriptor that ends before a limit.
func (t *tracer) beginning(w *walk, last *node) []string {
	if !last.hasBelow() {
		return nil
	}
	keys := t.keysBelow(last)
	if len(keys) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s is only the beginning of a rule, and has no limit itself (%s): the rule goes on with the key %s",
		ShowEntries(w.entries), t.where(last), strings.Join(keys, " or "))}
}

// keysBelow returns the first of the keys one level below, in the order of the file.
func (t *tracer) keysBelow(n *node) []string {
	const few = 3
	first := t.firstOfKeys(n)
	var nodes []*node
	for _, child := range first {
		nodes = append(nodes, child)
	}
	slices.SortFunc(nodes, compareNodes)
	var keys []string
	for _, child := range nodes[:min(few, len(nodes))] {
		keys = append(keys, yamlfile.Printable(child.entry.Key))
	}
	return keys
}

// hasKey reports whether a descriptor one level below n has the key.
func (t *tracer) hasKey(n *node, key string) bool {
	if n.key(key) != nil {
		return true
	}
	if t.looks -= len(n.exact); t.looks < 0 {
		return true // nothing is said about the key then
	}
	for e := range n.exact {
		if e.Key == key {
			return true
		}
	}
	return false
}

// unknownKey returns the hints about an entry whose key none of the descriptors has
// that are below n.
func (t *tracer) unknownKey(n *node, e bucket.Entry) []string {
	first := t.firstOfKeys(n)
	var keys []string
	for key := range first {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		if how := Almost(e.Key, key); how != "" {
			return []string{fmt.Sprintf("no descriptor here has the key %s; %s (%s) differs from it %s", shownValue(e.Key), yamlfile.Printable(key), t.where(first[key]), how)}
		}
	}
	if key := yamlfile.Nearest(e.Key, keys); key != "" {
		return []string{fmt.Sprintf("no descriptor here has the key %s; did you mean %s (%s)?", shownValue(e.Key), yamlfile.Printable(key), t.where(first[key]))}
	}
	for _, key := range keys {
		if deeper := first[key]; t.hasKey(deeper, e.Key) && t.looks > 0 {
			return []string{fmt.Sprintf("no descriptor here has the key %s, but one below %s has (%s): the descriptor would have to name that before it",
				shownValue(e.Key), shownEntry(deeper.entry), t.where(deeper))}
		}
	}
	return nil
}

// unknownValue returns the hints about an entry whose key some of the descriptors
// below n have.
func (t *tracer) unknownValue(n *node, e bucket.Entry) []string {
	var best *node
	if t.looks -= len(n.exact); t.looks >= 0 {
		best = t.nearestValue(n, e)
	}
	if best != nil {
		filed := best.entry.Value
		if how := Almost(e.Value, filed); how != "" {
			return []string{fmt.Sprintf("%s matches nothing: did you mean %s (%s), which differs %s?", shownEntry(e), quotedEntry(best.entry), t.where(best), how)}
		}
		return []string{fmt.Sprintf("%s begins with %s (%s), which matches that very value alone: to match what begins with it, its value needs a * at the end",
			shownEntry(e), quotedEntry(best.entry), t.where(best))}
	}
	if k := n.key(e.Key); k != nil {
		return t.regularExpression(k, e)
	}
	return nil
}

// nearestValue returns the descriptor below n whose exact value is almost that of
// the entry, else the one with the longest that the value begins with, or nil.
func (t *tracer) nearestValue(n *node, e bucket.Entry) *node {
	const shortest = 2 // "/" begins too much
	var best *node
	for at, child := range n.exact {
		if at.Key != e.Key {
			continue
		}
		switch isAlmost := Almost(e.Value, at.Value) != ""; {
		case !isAlmost && (len(at.Value) < shortest || !strings.HasPrefix(e.Value, at.Value)):
		case best == nil:
			best = child
		default:
			bestIsAlmost := Almost(e.Value, best.entry.Value) != ""
			if isAlmost && !bestIsAlmost ||
				isAlmost == bestIsAlmost && (!isAlmost && len(at.Value) > len(best.entry.Value) || isAlmost && compareNodes(child, best) < 0) {
				best = child
			}
		}
	}
	return best
}

// regularExpression is the hint about a pattern that would match if * were not the
// only sign that means something.
func (t *tracer) regularExpression(k *keyNodes, e bucket.Entry) []string {
	for _, child := range k.patterns.nodes {
		if t.looks--; t.looks < 0 || len(e.Value) > maxHintText {
			return nil
		}
		pattern := child.entry.Value
		meant := strings.TrimSuffix(strings.TrimPrefix(strings.ReplaceAll(pattern, ".*", "*"), "^"), "$")
		if meant != pattern && matches(meant, e.Value) {
			return []string{fmt.Sprintf("%s does not match %s (%s), which is no regular expression: * alone stands for other characters; did you mean %s?",
				shownEntry(e), quotedEntry(child.entry), t.where(child), shownValue(meant))}
		}
	}
	return nil
}

// almostTaken returns the hints about entries that a pattern or a bare key matches,
// and an exact value almost. A single letter is not enough: names of customers
// often differ by that.
func (t *tracer) almostTaken(w *walk) (hints []string) {
	up := t.domain.root
	for i, n := range w.path {
		if !n.isExact() {
			if t.looks -= len(up.exact); t.looks < 0 {
				return hints
			}
			e := w.entries[i]
			var found *node
			for at, child := range up.exact {
				if at.Key != e.Key || trimmed(at.Value) == "" {
					continue
				}
				if how := Almost(e.Value, at.Value); how != "" && how != byOneLetter && (found == nil || compareNodes(child, found) < 0) {
					found = child
				}
			}
			if found != nil {
				hints = append(hints, fmt.Sprintf("%s matches %s (%s) and not %s (%s), from which it differs %s",
					shownEntry(e), shownEntry(n.entry), t.where(n), quotedEntry(found.entry), t.where(found), Almost(e.Value, found.entry.Value)))
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
		if i < len(w.path) && w.path[i].entry.Value == "" {
			what = "so all who send none share a limit"
		}
		return []string{fmt.Sprintf("the value of %s is empty, as where a header is missing, %s", shownValue(e.Key), what)}
	}
	return nil
}

// otherOrder is the hint about entries that in another order lead to a descriptor of the
// file that is wanted, or "".
func (t *tracer) otherOrder(entries []bucket.Entry, wanted func(*node) bool) string {
	if len(entries) < 2 || len(entries) > maxOrdered || textOf(entries) > maxHintText {
		return ""
	}
	order := make([]bucket.Entry, 0, len(entries))
	used := make([]bool, len(entries))
	var search func(n *node) *node
	search = func(n *node) *node {
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
			if t.looks--; t.looks < 0 {
				return nil
			}
			next := n.next(&entries[i])
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
	found := search(t.domain.root)
	if found == nil {
		return ""
	}
	return fmt.Sprintf("the entries match in another order, as %s (%s): their order has to be that of the rule", ShowEntries(order), t.where(found))
}

// hintTogether adds the hints about descriptors of which one would match with the
// entries of another, and about entries that would match each by itself.
func (t *tracer) hintTogether(descriptors [][]bucket.Entry, traces []Trace) {
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

// together is the hint about descriptor i, which would match with the entries of
// another one before or after its own, or "".
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
					min(i, j), max(i, j), yamlfile.Shorten(rule.Path()), lineOf(rule.File, rule.Line))
			}
		}
	}
	return ""
}

// apart is the hint about entries of one descriptor of which each would match by
// itself, or "".
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

// where is the file and the line of a descriptor.
func (t *tracer) where(n *node) string { return lineOf(t.placeOf(n)) }

// ShowEntries returns entries as people paste them into a command line,
// "tenant=acme,user=bob". Those that would fill more than a few lines are cut, which
// dots tell.
func ShowEntries(entries []bucket.Entry) string {
	shown := slices.Clone(entries[:min(len(entries), maxOrdered)])
	for i := range shown {
		shown[i].Key, shown[i].Value = yamlfile.Shorten(shown[i].Key), yamlfile.Shorten(shown[i].Value)
	}
	text := spelling.Entries(shown)
	if len(shown) < len(entries) {
		text += ",..."
	}
	return spelling.ShellWord(text)
}

// quotedEntry is an entry of a file with its value between quotes, so that white
// space is seen.
func quotedEntry(e bucket.Entry) string {
	return yamlfile.Printable(e.Key) + "=" + yamlfile.Quote(e.Value)
}

func textOf(entries []bucket.Entry) int {
	n := 0
	for i := range entries {
		n += len(entries[i].Key) + len(entries[i].Value)
	}
	return n
}
