package trace

import (
	"maps"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/glob"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// tracer traces the descriptors of one request.
type tracer struct {
	domain *rules.Domain
	// looks, shows and hints are how many are left.
	looks, shows, hints int
	// keys are the keys below a descriptor, found once. keyLooks is how many descriptors
	// may still be looked at for them.
	keys     map[*rules.Node]*keysBelow
	keyLooks int
	// looked is how many descriptors were looked at, for keys and everything else.
	looked int
}

// look reports whether so many descriptors may be looked at, and counts them if so.
func (t *tracer) look(n int) bool {
	if n > t.looks {
		return false
	}
	t.looks -= n
	t.looked += n
	return true
}

// walk is how far the search for a descriptor got.
type walk struct {
	entries []bucket.Entry
	// path holds the node of each entry that matched.
	path []*rules.Node
}

// last returns the last node reached: the root if no entry matched.
func (w *walk) last(root *rules.Node) *rules.Node {
	if len(w.path) == 0 {
		return root
	}
	return w.path[len(w.path)-1]
}

// isEnd reports whether all entries matched.
func (w *walk) isEnd() bool { return len(w.path) == len(w.entries) }

// walk follows entries as far as they match.
func (t *tracer) walk(entries []bucket.Entry) *walk {
	w := &walk{entries: entries}
	n := t.domain.Root()
	for i := range entries {
		if n = n.Next(&entries[i]); n == nil {
			break
		}
		w.path = append(w.path, n)
	}
	return w
}

// keysBelow are the keys of the descriptors one level below another.
type keysBelow struct {
	// first holds the first descriptor of each key, and names the keys, sorted.
	first map[string]*rules.Node
	names []string
}

// keysOf returns the keys one level below n; nil after too many looks, when nothing can
// be said about them.
func (t *tracer) keysOf(n *rules.Node) *keysBelow {
	if known := t.keys[n]; known != nil {
		return known
	}
	if n.BelowCount() > t.keyLooks {
		return nil
	}
	t.keyLooks -= n.BelowCount()
	t.looked += n.BelowCount()
	k := &keysBelow{first: make(map[string]*rules.Node)}
	for child := range n.Below {
		key := child.Entry().Key
		if before := k.first[key]; before == nil || child.Compare(before) < 0 {
			k.first[key] = child
		}
	}
	k.names = slices.Sorted(maps.Keys(k.first))
	if t.keys == nil {
		t.keys = make(map[*rules.Node]*keysBelow)
	}
	t.keys[n] = k
	return k
}

// shownEntry is an entry in a form for people, no longer than a few lines.
func shownEntry(e bucket.Entry) string {
	text := yamlfile.Printable(e.Key)
	if e.Value != "" {
		text += "=" + shownValue(e.Value)
	}
	return text
}

func shownValue(value string) string {
	if short := yamlfile.Shorten(value); short != value {
		return yamlfile.Quote(value)
	}
	return yamlfile.Printable(value)
}

// matches reports whether a pattern by itself matches a value.
func matches(pattern, value string) bool {
	var one glob.Set
	one.Add(pattern)
	return one.First(value) == 0
}
