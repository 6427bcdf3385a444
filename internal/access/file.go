package access

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

const (
	// maxItems bounds the items of a file, and what an item lists.
	maxItems = 10_000
	// maxName bounds the bytes of names.
	maxName = 255
)

// newLive returns a Live of the file at a path, without a value.
func newLive[T any](what, path string, log *slog.Logger, parse func(file string, data []byte) (*T, int, error)) *reload.Live[T] {
	return reload.New(what, path, log, func(path string) (reload.Files[T], error) {
		data, err := read(path)
		return reload.Files[T]{
			Digest: sha256.Sum256(data),
			Parse: func(*T) (*T, []any, error) {
				value, items, err := parse(path, data)
				if err != nil {
					return nil, nil, err
				}
				return value, []any{"callers", items}, nil
			},
		}, err
	})
}

func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", path)
	}
	return yamlfile.ReadFile(path)
}

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

// parse reads a list of items. item reads what the kind of file has beside a name
// and credentials; name is "" if it could not be read.
func parse[T any](file string, data []byte, level *yamlfile.Level, item func(p *parser[T], o *yamlfile.Object, name string) *T) (holders[T], int, error) {
	p := &parser[T]{
		Reader: yamlfile.NewReader(file, len(data), level), level: level, holders: newHolders[T](),
		tokenLines: make(map[Digest]int), certificateLines: make(map[string]int),
	}
	if err := p.file(data, item); err != nil {
		err.File = file
		p.Errs = append(p.Errs, *err)
	}
	if len(p.Errs) > 0 {
		p.Errs.Sort()
		return holders[T]{}, 0, p.Errs
	}
	return p.holders, p.items, nil
}

func (p *parser[T]) file(data []byte, item func(*parser[T], *yamlfile.Object, string) *T) *yamlfile.Error {
	text, err := p.Utf8(data)
	if err != nil {
		return err
	}
	doc, err := p.ParseYAML(text)
	if doc == nil {
		if err == nil {
			// A file that is half written must not lock out everybody.
			err = &yamlfile.Error{Line: 1, Column: 1, Found: "an empty file", Allowed: "a list; [] lets nobody in"}
		}
		return err
	}
	root := yamlfile.Root(doc)
	if !p.holds(root, yaml.SequenceNode, "a list, each item "+p.level.Is+"; [] lets nobody in") {
		return err
	}
	list, ok := p.List(root, "items")
	if ok && list.Len() > maxItems {
		p.Bad(root, fmt.Sprintf("%d items", list.Len()), fmt.Sprintf("at most %d", maxItems))
		return err
	}
	p.items = list.Len()
	for v := range list.All() {
		p.item(v, item)
	}
	return err
}

// holds reports whether a node is of a kind. It does not say what a scalar holds,
// which may be a token.
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
	v, ok := o.Field("name")
	if !ok {
		p.Bad(o.Value, "no name", "name: NAME, in every item")
		return ""
	}
	name, _ := p.Name(v, "a name", maxName)
	return name
}

// knownMistakes are what sha256sum says of nothing and of an empty line.
var knownMistakes = map[Digest]string{
	sha256.Sum256(nil):          "the SHA-256 of nothing",
	sha256.Sum256([]byte("\n")): "the SHA-256 of an empty line",
}

// token reads the SHA-256 of a token. What is no SHA-256 may be the token itself, so
// errors do not show it.
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
