package access

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// NewToken returns a token of 32 random bytes, in 43 characters that need no escapes in
// headers, URLs and shells, and its digest.
func NewToken() (token string, d Digest) {
	var random [32]byte
	rand.Read(random[:]) // never fails
	token = base64.RawURLEncoding.EncodeToString(random[:])
	return token, sha256.Sum256([]byte(token))
}

// TokensText is the text of a tokens file, to which tokens can be added. What people
// wrote in it stays as it is. A TokensText does not change.
type TokensText struct {
	file string
	text []byte
	// root is the list, or nil in a text without one, which may still have comments.
	root  *yaml.Node
	items []tokenItem
}

// tokenItem is an item of a tokens file.
type tokenItem struct {
	name string
	role Role
	// value is what sha256 or certificate says, at a place in the text.
	value    string
	line     int
	hasToken bool
}

// ErrNameTaken: the name already has a token.
var ErrNameTaken = errors.New("the name has a token")

// ReadTokensText reads the text of a tokens file, nil for one that is not there yet.
// Its error has all that is wrong with it.
func ReadTokensText(file string, text []byte) (*TokensText, error) {
	t := &TokensText{file: file, text: text}
	doc, second, err := yamlfile.DecodeYAML(text)
	if err == nil && doc == nil && second == nil {
		return t, nil
	}
	read := memberItem()
	_, _, err = parse(file, text, memberLevel, func(p *parser[Member], o *yamlfile.Object, name string) *Member {
		m := read(p, o, name)
		item := tokenItem{name: name, role: m.Role, hasToken: o.Has("sha256")}
		for _, key := range [...]string{"sha256", "certificate"} {
			if v, ok := o.Field(key); ok {
				item.value, item.line = p.Follow(v).Value, p.Follow(v).Line
			}
		}
		t.items = append(t.items, item)
		return m
	})
	if err != nil {
		return nil, err
	}
	t.root = doc
	if doc.Kind == yaml.DocumentNode {
		t.root = doc.Content[0]
	}
	return t, nil
}

// Add returns the text with a token of a name that has none. The error wraps
// ErrNameTaken if it has one.
func (t *TokensText) Add(name string, role Role, d Digest) ([]byte, error) {
	if tokens := t.tokensOf(name); len(tokens) > 0 {
		return nil, fmt.Errorf("%s: found a token of %s on %s: %w", t.file, yamlfile.Quote(name), linesOf(tokens), ErrNameTaken)
	}
	return t.AddBeside(name, role, d)
}

// AddBeside returns the text with one more token of a name. The role NoRole stands for
// the one that the name has.
func (t *TokensText) AddBeside(name string, role Role, d Digest) ([]byte, error) {
	role, err := t.roleOf(name, role)
	if err != nil {
		return nil, err
	}
	added := tokenItem{name: name, role: role, value: hex.EncodeToString(d[:]), hasToken: true}
	return t.checked(t.with(added), append(slices.Clone(t.items), added))
}

// Replace returns the text with another token in place of a name's only one. The role
// NoRole stands for the one that the name has.
func (t *TokensText) Replace(name string, role Role, d Digest) ([]byte, error) {
	if _, err := t.roleOf(name, role); err != nil {
		return nil, err
	}
	tokens := t.tokensOf(name)
	switch len(tokens) {
	case 0:
		return nil, fmt.Errorf("%s: found no token of %s to replace; allowed: %s", t.file, yamlfile.Quote(name), t.names())
	case 1:
	default:
		return nil, fmt.Errorf("%s: found %d tokens of %s, on %s; allowed: one, which is replaced. Remove those that are no longer in use", t.file, len(tokens), yamlfile.Quote(name), linesOf(tokens))
	}
	digest := hex.EncodeToString(d[:])
	lines := bytes.SplitAfter(t.text, []byte("\n"))
	line := tokens[0].line - 1
	lines[line] = bytes.Replace(lines[line], []byte(tokens[0].value), []byte(digest), 1)
	items := slices.Clone(t.items)
	items[slices.Index(items, tokens[0])].value = digest
	return t.checked(bytes.Join(lines, nil), items)
}

// Tokens returns how many tokens a name has.
func (t *TokensText) Tokens(name string) int { return len(t.tokensOf(name)) }

// Role returns the role of a name, and whether the text has one.
func (t *TokensText) Role(name string) (Role, bool) {
	role, err := t.roleOf(name, NoRole)
	return role, err == nil
}

func (t *TokensText) tokensOf(name string) (tokens []tokenItem) {
	for _, item := range t.items {
		if item.name == name && item.hasToken {
			tokens = append(tokens, item)
		}
	}
	return tokens
}

// names says which names have a token.
func (t *TokensText) names() string {
	var names []string
	for _, item := range t.items {
		if item.hasToken {
			names = append(names, yamlfile.Printable(item.name))
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); names == nil {
		return "none, since the file has no token"
	}
	const shown = 20
	if len(names) > shown {
		names = append(names[:shown], "...")
	}
	return yamlfile.Commas(names)
}

func linesOf(tokens []tokenItem) string {
	var lines []string
	for _, item := range tokens {
		lines = append(lines, fmt.Sprintf("line %d", item.line))
	}
	return yamlfile.Commas(lines)
}

// roleOf returns the role of a name, which is the same for all its entries.
func (t *TokensText) roleOf(name string, role Role) (Role, error) {
	for _, item := range t.items {
		switch {
		case item.name != name:
		case role == NoRole || role == item.role:
			return item.role, nil
		default:
			return NoRole, fmt.Errorf("%s: found the role %s for %s, which has the role %s on line %d; allowed: %s, or another name", t.file, role, yamlfile.Quote(name), item.role, item.line, item.role)
		}
	}
	if role == NoRole {
		return NoRole, fmt.Errorf("%s: found no entry of %s, and no role for one; allowed: %s", t.file, yamlfile.Quote(name), yamlfile.Commas(roleNames[Viewer:]))
	}
	return role, nil
}

// with returns the text with one more item.
func (t *TokensText) with(item tokenItem) []byte {
	if t.root != nil && t.root.Style&yaml.FlowStyle != 0 {
		return t.withInFlow(item)
	}
	indent := ""
	if t.root != nil {
		indent = strings.Repeat(" ", t.root.Column-1)
	}
	text := slices.Clone(t.text)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	entry := indent + "- " + strings.ReplaceAll(blockEntry(item), "\n", "\n"+indent+"  ") + "\n"
	if bytes.Contains(text, []byte("\r\n")) {
		entry = strings.ReplaceAll(entry, "\n", "\r\n")
	}
	return append(text, entry...)
}

// withInFlow is with for a list in brackets: an empty one becomes a list with a dash for
// each item.
func (t *TokensText) withInFlow(item tokenItem) []byte {
	end := bytes.LastIndexByte(t.text, ']')
	if end < 0 {
		return nil // which checked refuses
	}
	before, after := bytes.TrimRight(t.text[:end], " \t\r\n"), t.text[end:]
	if len(t.items) == 0 && bytes.HasSuffix(before, []byte("[")) {
		before, after = before[:len(before)-1], after[1:]
		return slices.Concat(before, []byte("- "+strings.ReplaceAll(blockEntry(item), "\n", "\n  ")), after)
	}
	entry, err := json.Marshal(map[string]string{"name": item.name, "role": item.role.String(), "sha256": item.value})
	if err != nil {
		panic(err) // strings always marshal
	}
	return slices.Concat(before, []byte(",\n "), entry, t.text[len(before):])
}

// blockEntry returns the keys of an item, a line each.
func blockEntry(item tokenItem) string {
	text, err := yaml.Marshal(struct {
		Name   string `yaml:"name"`
		Role   string `yaml:"role"`
		SHA256 string `yaml:"sha256"`
	}{item.name, item.role.String(), item.value})
	if err != nil {
		panic(err) // strings always marshal
	}
	return strings.TrimSuffix(string(text), "\n")
}

// checked returns a text if it has these items and its meaning is otherwise unchanged.
func (t *TokensText) checked(text []byte, items []tokenItem) ([]byte, error) {
	as := func(items []tokenItem) []tokenItem {
		items = slices.Clone(items)
		for i := range items {
			items[i].line = 0
		}
		return items
	}
	now, err := ReadTokensText(t.file, text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("with the new entry the file would be wrong, so it stays as it is:\n%w", err)
	case !slices.Equal(as(now.items), as(items)):
		return nil, fmt.Errorf("%s: found a list that no entry can be written into without touching others; allowed: a list with a dash for each item, at the end of the file", t.file)
	}
	return text, nil
}
