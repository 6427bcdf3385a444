package config

import (
	"crypto/sha256"
	"iter"
	"log/slog"
	"math"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Resource is a domain that comes in a message instead of a file.
type Resource struct {
	// Name names it in errors, in the place of a file.
	Name string
	// Tree returns it as the tree that a limits file would have. An error says why
	// the resource is none. It is called when the resource is read, so that one tree
	// is held at a time.
	Tree func() (Tree, error)
}

// Tree is the tree of a limits file, without lines and aliases.
type Tree struct {
	Root *yaml.Node
	// Items, if set, returns the items of a list of descriptors that the tree has
	// empty, or nil. It is called once for each list. An item takes many times the
	// memory of what it is made of, so they are made one after the other.
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

// NewFedLive returns a Live without rules, which Feed loads. from says where they
// come from, for the log.
func (o LoadOptions) NewFedLive(from string, log *slog.Logger) *Live {
	l := o.newLive()
	l.Live = reload.New[Rules]("limits", from, log, nil)
	return l
}

// Feed puts the rules of resources in force, all or nothing: on any error the
// rules before stay. Resources of the digest of those in force change nothing.
// Errors in resources are yamlfile.Errors, in the order of the names. No resource
// is read after a hundred errors.
func (l *Live) Feed(digest [sha256.Size]byte, resources []Resource) error {
	return l.Replace(reload.Files[Rules]{
		Digest: digest,
		Parse: func(before *Rules) (*Rules, []any, error) {
			return l.load(before, func(loader *loader) (*Rules, []Text, error) { return loader.resources(resources) }, "resources", len(resources))
		},
		Sparing: l.options.Sparing,
		InForce: func(log *slog.Logger, replaced bool) {
			if replaced {
				logWarnings(log, l.Rules().warnings)
			}
		},
	})
}

// resources reads all of them. It returns their texts if somebody wants to know.
func (l *loader) resources(list []Resource) (rules *Rules, texts []Text, err error) {
	const enough = 100
	errors := 0
	for _, r := range list {
		if errors >= enough {
			break
		}
		yield()
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
			texts = append(texts, Text{r.Name, string(text)})
		}
		p := l.parser(r.Name, nodesMade)
		p.Made, p.items = true, tree.Items
		p.domain(yamlfile.Root(tree.Root))
		l.parsed(p)
		errors += len(p.Errs)
	}
	rules, err = l.result()
	return rules, texts, err
}

// nodesMade is more than a tree has. Without aliases it needs no bound of its own.
const nodesMade = math.MaxInt32 / 2

// lineOfItem returns what tells people which item of a list is meant.
func (p *fileParser) lineOfItem(item yamlfile.Value) int32 {
	if p.Made {
		return int32(item.Index())
	}
	return int32(item.Node.Line)
}
