package access

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

const (
	// maxItems bounds the items of a file, and what an item lists.
	maxItems = 10_000
	// maxName bounds the bytes of names.
	maxName = 255
)

// parser reads the items of a file into holders.
type parser[T any] struct {
	*yamlfile.Reader
	level   *yamlfile.Level
	holders holders[T]
	// lines are those of the first use of each token and certificate.
	tokenLines       map[Digest]int
	certificateLines map[string]int
	items            int
}

// parse reads a list of items, and returns their number for the log as well. item reads
// what the kind of file has besides a name and credentials; name is "" if it could not be
// read.
func parse[T any](file string, data []byte, level *yamlfile.Level, item func(p *parser[T], o *yamlfile.Object, name string) *T) (holders[T], []any, error) {
	p := &parser[T]{
		Reader: yamlfile.NewReader(file, len(data), level), level: level, holders: newHolders[T](),
		tokenLines: make(map[Digest]int), certificateLines: make(map[string]int),
	}
	// An empty file may be half written, and must not lock out everyone.
	err := p.Parse(data, "a list; [] admits no one", func(root yamlfile.Value) { p.list(root, item) })
	if err != nil {
		return holders[T]{}, nil, err
	}
	return p.holders, []any{"callers", p.items}, nil
}

func (p *parser[T]) list(root yamlfile.Value, item func(*parser[T], *yamlfile.Object, string) *T) {
	if !p.holds(root, yaml.SequenceNode, "a list, each item "+p.level.Is+"; [] admits no one") {
		return
	}
	list, ok := p.List(root, "items")
	if ok && list.Len() > maxItems {
		p.Bad(root, fmt.Sprintf("%d items", list.Len()), fmt.Sprintf("at most %d", maxItems))
		return
	}
	p.items = list.Len()
	for v := range list.All() {
		p.item(v, item)
	}
}

// holds reports whether a node is of a kind. It never reports what a scalar holds, which
// may be a token.
func (p *parser[T]) holds(v yamlfile.Value, kind yaml.Kind, allowed string) bool {
	n := p.Follow(v)
	if p.Spent() {
		return false
	}
	if n.Kind == kind {
		return true
	}
	found := "a text"
	switch n.Kind {
	case yaml.MappingNode:
		found = "a mapping"
	case yaml.SequenceNode:
		found = "a list"
	}
	if n.Tag == "!!null" {
		found = "no value"
	}
	p.Bad(v, found, allowed)
	return false
}

func (p *parser[T]) item(v yamlfile.Value, item func(*parser[T], *yamlfile.Object, string) *T) {
	if !p.holds(v, yaml.MappingNode, p.level.Is+", with "+yamlfile.Commas(p.level.Names())) {
		return
	}
	o, ok := p.Object(v, p.level)
	if !ok {
		return
	}
	holder := item(p, o, p.name(o))
	token, hasToken := o.Field("sha256")
	certificate, hasCertificate := o.Field("certificate")
	switch {
	case hasToken && hasCertificate:
		p.Bad(yamlfile.Later(o.Key("sha256"), o.Key("certificate")), "sha256 beside certificate", "one of them in an item")
	case hasToken:
		p.token(token, holder)
	case hasCertificate:
		p.certificate(certificate, holder)
	default:
		p.Bad(o.Value, "neither sha256 nor certificate", "one of them: the SHA-256 of a token, or a name in a client's certificate")
	}
}

func (p *parser[T]) name(o *yamlfile.Object) string {
	v, ok := p.Needed(o, "name", "name: NAME, in every item")
	if !ok {
		return ""
	}
	name, _ := p.Name(v, "a name", maxName)
	return name
}

// knownMistakes are what sha256sum prints for no input and for an empty line.
var knownMistakes = map[Digest]string{
	sha256.Sum256(nil):          "the SHA-256 of nothing",
	sha256.Sum256([]byte("\n")): "the SHA-256 of an empty line",
}

// token reads the SHA-256 of a token. Anything else may be the token itself, so errors do
// not show it.
func (p *parser[T]) token(v yamlfile.Value, holder *T) {
	const allowed = "the SHA-256 of a token: 64 digits of 0-9 and a-f, as sha256sum prints them"
	if !p.holds(v, yaml.ScalarNode, allowed) {
		return
	}
	text := p.Follow(v).Value
	var d Digest
	if n, err := hex.Decode(d[:min(len(d), len(text)/2)], []byte(text[:min(len(text), 2*len(d))])); err != nil || n != len(d) || len(text) != 2*len(d) {
		p.Bad(v, fmt.Sprintf("%d bytes that are no SHA-256", len(text)), allowed)
		return
	}
	if mistake := knownMistakes[d]; mistake != "" {
		p.Bad(v, mistake, "that of a token")
		return
	}
	if first := p.tokenLines[d]; first != 0 {
		p.Bad(v, fmt.Sprintf("the token of line %d again", first), "each token once")
		return
	}
	p.tokenLines[d] = v.Node.Line
	p.holders.addToken(d, holder)
}

func (p *parser[T]) certificate(v yamlfile.Value, holder *T) {
	text, ok := p.Name(v, "a name in a client's certificate, with its kind,", maxName)
	if !ok {
		return
	}
	name, found, allowed := certificateName(text)
	if found != "" {
		p.Bad(v, found, allowed)
		return
	}
	if first := p.certificateLines[name]; first != 0 {
		p.Bad(v, fmt.Sprintf("the certificate of line %d again", first), "each once")
		return
	}
	p.certificateLines[name] = v.Node.Line
	p.holders.byName[name] = holder
}
