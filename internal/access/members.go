package access

import (
	"fmt"
	"log/slog"

	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Member is a caller of the admin API.
type Member struct {
	// Name is for the audit.
	Name string
	Role Role
	// IsLocal is set for callers from this machine without credentials, where
	// no file says who may do what.
	IsLocal bool
}

// Members are those who may call the admin API, by the tokens file. They never change.
type Members struct{ holders holders[Member] }

// LiveMembers holds the tokens file in force, and replaces it when it changes.
type LiveMembers = reload.Live[Members]

// NewLiveMembers returns a LiveMembers without a value; its Reload or Watch loads
// it.
func NewLiveMembers(path string, log *slog.Logger) *LiveMembers {
	return reload.New("tokens file", path, log, reload.File(yamlfile.ReadFile, parseMembers))
}

var memberLevel = &yamlfile.Level{Is: "a token or certificate with its role", Fields: []yamlfile.Field{
	{Name: "name"}, {Name: "role"}, {Name: "sha256"}, {Name: "certificate"},
}}

func parseMembers(file string, data []byte) (*Members, []any, error) {
	h, size, err := parse(file, data, memberLevel, memberItem())
	if err != nil {
		return nil, nil, err
	}
	return &Members{h}, size, nil
}

// memberItem returns a function that reads the items of a tokens file.
func memberItem() func(p *parser[Member], o *yamlfile.Object, name string) *Member {
	type first struct {
		role Role
		line int
	}
	firsts := make(map[string]first)
	return func(p *parser[Member], o *yamlfile.Object, name string) *Member {
		m := &Member{Name: name}
		v, ok := p.Needed(o, "role", "role: one of "+yamlfile.Commas(roleNames[Viewer:]))
		if !ok {
			return m
		}
		if m.Role, ok = yamlfile.OneOf(p.Reader, v, Viewer, Support, Operator); !ok {
			return m
		}
		// A name may have several tokens, so that one can replace another. The audit has
		// only the name, so a name has one role.
		if f, again := firsts[name]; again && name != "" && f.role != m.Role {
			p.Bad(v, fmt.Sprintf("another role of %s than on line %d", yamlfile.Quote(name), f.line), f.role.String()+", or another name")
		} else if !again {
			firsts[name] = first{m.Role, v.Node.Line}
		}
		return m
	}
}
