package replay

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// WriteFits writes the proposals as limits files, one after the other for each domain,
// preceded by a comment. They have the rules that were asked, with everything that their
// files say about them and with the proposed numbers, and nothing of other rules. It
// reads the limits files again, and fails if they have changed.
func (r *Report) WriteFits(out io.Writer) error {
	files := make(map[string]*yaml.Node)
	var domains []*proposal
	for i := range r.Fits {
		f := &r.Fits[i]
		file := f.rule.File
		if files[file] == nil {
			root, err := readRoot(file)
			if err != nil {
				return fmt.Errorf("limits file %s, read again for what is proposed: %w", yamlfile.Printable(file), err)
			}
			files[file] = root
		}
		if n := len(domains); n == 0 || domains[n-1].domain != f.Domain {
			domains = append(domains, &proposal{domain: f.Domain, piece: piece{node: without(files[file], "descriptors")}})
		}
		if err := domains[len(domains)-1].add(f, files[file]); err != nil {
			return fmt.Errorf("limits file %s, read again for what is proposed: rule %s: %w", yamlfile.Printable(file), yamlfile.Printable(f.Rule), err)
		}
	}
	for _, d := range domains {
		var text bytes.Buffer
		fmt.Fprintf(&text, "# limits file of the domain %s: the rules that were asked, with these numbers\n", yamlfile.Printable(d.domain))
		e := yaml.NewEncoder(&text)
		e.SetIndent(2)
		if err := cmp.Or(e.Encode(d.whole()), e.Close()); err != nil {
			return err
		}
		if _, err := out.Write(text.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// readRoot returns the outermost mapping of a limits file, without anchors, aliases and
// merges, so that each part of it is complete by itself.
func readRoot(file string) (*yaml.Node, error) {
	data, err := yamlfile.ReadFile(file)
	if err != nil {
		return nil, err
	}
	doc, _, err := yamlfile.DecodeYAML(data)
	if err != nil {
		return nil, err
	}
	if doc == nil || len(doc.Content) == 0 {
		return nil, errChanged
	}
	return spelledOut(doc.Content[0]), nil
}

var errChanged = errors.New("it has changed meanwhile")

// spelledOut copies a node, replacing aliases and merges by what they stand for.
func spelledOut(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	to := *n
	to.Anchor, to.Content = "", nil
	var merged []*yaml.Node
	for i := 0; i < len(n.Content); i++ {
		if n.Kind == yaml.MappingNode && i%2 == 0 && n.Content[i].Tag == "!!merge" {
			i++
			merged = append(merged, spelledOut(n.Content[i]))
			continue
		}
		to.Content = append(to.Content, spelledOut(n.Content[i]))
	}
	for i := 0; i < len(merged); i++ { // the first that says something counts
		m := merged[i]
		if m.Kind == yaml.SequenceNode {
			merged = slices.Insert(merged, i+1, m.Content...)
			continue
		}
		for j := 0; j+1 < len(m.Content); j += 2 {
			if field(&to, m.Content[j].Value) == nil {
				to.Content = append(to.Content, m.Content[j], m.Content[j+1])
			}
		}
	}
	return &to
}

// field returns the value of a field of a mapping, or nil. What is looked up here is
// written again unchanged; yamlfile.Object is for reading.
func field(n *yaml.Node, name string) *yaml.Node {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				return n.Content[i+1]
			}
		}
	}
	return nil
}

// without copies a mapping without a field.
func without(n *yaml.Node, name string) *yaml.Node {
	to := *n
	to.Content = nil
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != name {
			to.Content = append(to.Content, n.Content[i], n.Content[i+1])
		}
	}
	return &to
}

// proposal is the limits file of a domain.
type proposal struct {
	domain string
	piece
}

// piece is a mapping in it, with what is below.
type piece struct {
	// node is the mapping of the file, without descriptors; until its rule was asked it
	// only has key and value.
	node    *yaml.Node
	entry   bucket.Entry
	isWhole bool
	below   []*piece
}

// add puts the rule of a fit into the proposal, and its numbers into the rule.
func (p *piece) add(f *Fit, root *yaml.Node) error {
	entries := f.rule.Entries()
	from := root
	for i, e := range entries {
		line := 0
		if i == len(entries)-1 && f.rule.Plan == "" {
			line = f.rule.Line
		}
		if from = descriptor(from, e, line); from == nil {
			return errChanged
		}
		at := slices.IndexFunc(p.below, func(below *piece) bool { return below.entry == e })
		if at < 0 {
			at = len(p.below)
			p.below = append(p.below, &piece{node: bare(from), entry: e})
		}
		p = p.below[at]
	}
	if !p.isWhole {
		p.node, p.isWhole = without(from, "descriptors"), true
	}
	limit, err := limitOf(p.node, f.rule, slices.Index(f.rule.Limits, f.limit))
	if err != nil || f.Problem != "" {
		return err
	}
	return f.write(limit)
}

// bare copies the key and the value of a descriptor.
func bare(n *yaml.Node) *yaml.Node {
	to := &yaml.Node{Kind: yaml.MappingNode, Tag: n.Tag}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if name := n.Content[i].Value; name == "key" || name == "value" {
			to.Content = append(to.Content, n.Content[i], n.Content[i+1])
		}
	}
	return to
}

// descriptor returns the descriptor of an entry below a mapping: the one on a line of the
// file, if several have the entry. 0 is any line.
func descriptor(above *yaml.Node, e bucket.Entry, line int) (found *yaml.Node) {
	list := field(above, "descriptors")
	if list == nil {
		return nil
	}
	for _, d := range list.Content {
		key, value := field(d, "key"), field(d, "value")
		if key == nil || key.Value != e.Key || (value != nil && value.Value != e.Value) || (value == nil && e.Value != "") {
			continue
		}
		if found == nil || d.Line == line {
			found = d
		}
	}
	return found
}

// limitOf returns the mapping of a limit in its descriptor.
func limitOf(d *yaml.Node, rule *rules.Rule, index int) (*yaml.Node, error) {
	at := cmp.Or(field(d, "rate_limit"), field(d, "rate_limits"))
	if plans := field(d, "plans"); rule.Plan != "" && plans != nil {
		at = field(plans, rule.Plan)
	}
	if at != nil && at.Kind == yaml.SequenceNode && len(at.Content) == len(rule.Limits) {
		at = at.Content[index]
	}
	if at == nil || at.Kind != yaml.MappingNode {
		return nil, errChanged
	}
	return at, nil
}

// write puts the proposed numbers into the mapping of a limit.
func (f *Fit) write(limit *yaml.Node) error {
	requests := cmp.Or(field(limit, "requests"), field(limit, "requests_per_unit"))
	if requests == nil {
		return errChanged
	}
	setNumber(requests, f.ProposedRequests)
	burst := field(limit, "burst")
	switch {
	case burst != nil && f.ProposedBurst > 0:
		setNumber(burst, f.ProposedBurst)
	case f.ProposedBurst > 0 && f.ProposedBurst != f.ProposedRequests:
		var name, number yaml.Node
		name.SetString("burst")
		setNumber(&number, f.ProposedBurst)
		limit.Content = append(limit.Content, &name, &number)
	}
	return nil
}

func setNumber(n *yaml.Node, number int64) {
	n.Kind, n.Tag, n.Style, n.Value = yaml.ScalarNode, "!!int", 0, strconv.FormatInt(number, 10)
}

// whole returns the mapping with everything below it.
func (p *piece) whole() *yaml.Node {
	if len(p.below) == 0 {
		return p.node
	}
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, below := range p.below {
		list.Content = append(list.Content, below.whole())
	}
	var name yaml.Node
	name.SetString("descriptors")
	p.node.Content = append(p.node.Content, &name, list)
	return p.node
}
