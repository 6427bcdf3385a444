package limitsfile_test

import (
	"fmt"
	"iter"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket/heaptest"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
)

// madeText is a node as a program makes one.
func madeText(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

func madeMapping(content ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: content}
}

// madeDescriptor is one with a limit.
func madeDescriptor(key string) *yaml.Node {
	limit := madeMapping(madeText("requests_per_unit"), &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: "5"}, madeText("unit"), madeText("hour"))
	return madeMapping(madeText("key"), madeText(key), madeText("rate_limit"), limit)
}

// What a resource was read with is let go of before the next one is read: of each
// only its rules are held.
func TestOfManyResourcesOnlyTheRulesAreHeld(t *testing.T) {
	const count, maxBytes = 10_000, 1500 // bytes of each
	var first, last int64
	list := make([]limitsfile.Resource, count)
	for i := range list {
		list[i] = limitsfile.Resource{Name: fmt.Sprint("resource ", i), Tree: func() (limitsfile.Tree, error) {
			switch i {
			case 0:
				first = heaptest.InUse()
			case count - 1:
				last = heaptest.InUse()
			}
			items := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: []*yaml.Node{madeDescriptor("user")}}
			return limitsfile.Tree{Root: madeMapping(madeText("domain"), madeText(fmt.Sprint("d", i)), madeText("descriptors"), items)}, nil
		}}
	}
	if err := (limitsfile.Options{}).NewFedLive("a test", nil).Feed([32]byte{1}, list); err != nil {
		t.Fatal(err)
	}
	if each := (last - first) / count; each > maxBytes {
		t.Errorf("%d bytes of each are held", each)
	} else {
		t.Logf("%d bytes of each are held", each)
	}
}

// An item is let go of before the next one is made.
func TestOfALongListOnlyTheRulesAreHeld(t *testing.T) {
	const count, maxBytes = 10_000, 1200 // bytes of each
	var first, last int64
	list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	items := func(n *yaml.Node) iter.Seq[*yaml.Node] {
		if n != list {
			return nil
		}
		return func(yield func(*yaml.Node) bool) {
			for i := range count {
				switch i {
				case 0:
					first = heaptest.InUse()
				case count - 1:
					last = heaptest.InUse()
				}
				if !yield(madeDescriptor(fmt.Sprint("key", i))) {
					return
				}
			}
		}
	}
	tree := limitsfile.Tree{Root: madeMapping(madeText("domain"), madeText("d"), madeText("descriptors"), list), Items: items}
	live := limitsfile.Options{}.NewFedLive("a test", nil)
	if err := live.Feed([32]byte{1}, []limitsfile.Resource{{Name: "r", Tree: func() (limitsfile.Tree, error) { return tree, nil }}}); err != nil {
		t.Fatal(err)
	}
	if live.Rules().Count() != count {
		t.Errorf("%d rules", live.Rules().Count())
	}
	if each := (last - first) / count; each > maxBytes {
		t.Errorf("%d bytes of each are held", each)
	} else {
		t.Logf("%d bytes of each are held", each)
	}
}

// A server cannot have a daemon keep a warning for each of 100,000 resources.
func TestWarningsOfResourcesAreBounded(t *testing.T) {
	list := make([]limitsfile.Resource, 5000)
	for i := range list {
		list[i] = limitsfile.Resource{Name: fmt.Sprint("resource ", i), Tree: func() (limitsfile.Tree, error) {
			items := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: []*yaml.Node{madeDescriptor("*")}}
			return limitsfile.Tree{Root: madeMapping(madeText("domain"), madeText(fmt.Sprint("d", i)), madeText("descriptors"), items)}, nil
		}}
	}
	live := limitsfile.Options{Lenient: true}.NewFedLive("a test", nil)
	if err := live.Feed([32]byte{1}, list); err != nil {
		t.Fatal(err)
	}
	if n := len(live.Rules().Warnings()); n < 100 || n > 1100 {
		t.Errorf("%d warnings", n)
	}
}
