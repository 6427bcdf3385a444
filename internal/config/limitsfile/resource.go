package limitsfile

import (
	"crypto/sha256"
	"iter"
	"log/slog"
	"math"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Resource is a domain that comes in a message instead of a file.
type Resource struct {
	// Name identifies it in errors, in place of a file name.
	Name string
	// Tree returns it as the tree that a limits file would have. An error says why the
	// resource is invalid. It is called when the resource is read, so that only one tree
	// is held at a time.
	Tree func() (Tree, error)
}

// Tree is the tree of a limits file, without lines and aliases.
type Tree struct {
	Root *yaml.Node
	// Items, if set, returns the items of a list of descriptors that is empty in the
	// tree, or nil. It is called once for each list. An item takes many times the memory
	// of what it is made from, so items are made one by one.
	Items func(list *yaml.Node) iter.Seq[*yaml.Node]
}

// fill puts the items of all lists below a node into the tree.
func (t Tree) fill(n *yaml.Node) {
	if t.Items == nil {
		return
	}
	if items := t.Items(n); items != nil {
		n.Content = slices.Collect(items)
	}
	for _, below := range n.Content {
		t.fill(below)
	}
}

// FedLive is a Live that Feed loads.
type FedLive struct {
	*rules.Live
	options Options
}

// NewFedLive returns a FedLive without rules. from says where they come from, for the
// log, which may be nil.
func (o Options) NewFedLive(from string, log *slog.Logger) *FedLive {
	return &FedLive{Live: &rules.Live{Live: reload.New[rules.Set]("limits", from, log, nil)}, options: o.withClock()}
}

// Feed puts the rules of resources in force, all or nothing: on any error the previous
// rules stay. Resources with the digest of those in force change nothing. Errors in
// resources are yamlfile.Errors, in the order of the names. After a hundred errors no
// further resource is read.
func (l *FedLive) Feed(digest [sha256.Size]byte, resources []Resource) error {
	return l.Replace(reload.Files[rules.Set]{
		Digest: digest,
		Parse: func(before *rules.Set) (*rules.Set, []any, error) {
			return l.options.load(before, func(loader *loader) (*rules.Set, []Text, error) { return loader.resources(resources) }, "resources", len(resources))
		},
		Sparing: l.options.Sparing,
		InForce: func(log *slog.Logger, replaced bool) {
			if replaced {
				logWarnings(log, l.Rules().Warnings())
			}
		},
	})
}

// resources reads all of them. It returns their texts if anyone needs them.
func (l *loader) resources(list []Resource) (rules *rules.Set, texts []Text, err error) {
	const maxErrors = 100
	errors := 0
	for _, r := range list {
		if errors >= maxErrors {
			break
		}
		reload.Yield()
		tree, err := r.Tree()
		if err != nil {
			l.errs = append(l.errs, yamlfile.Error{File: r.Name, Found: err.Error()})
			errors++
			continue
		}
		if l.options.Announce != nil {
			tree.fill(tree.Root)
			text, err := yaml.Marshal(tree.Root)
			if err != nil {
				return nil, nil, err
			}
			texts = append(texts, Text{Name: r.Name, Text: string(text)})
		}
		p := l.shared.Parser(r.Name, nodesMade)
		p.Tree(tree.Root, tree.Items)
		l.parsed(p)
		errors += len(p.Errs)
	}
	rules, err = l.result()
	return rules, texts, err
}

// nodesMade is more nodes than any tree has. Without aliases a tree needs no bound of its
// own.
const nodesMade = math.MaxInt32 / 2
