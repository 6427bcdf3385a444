package access

import (
	"fmt"
	"log/slog"

	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Member is who calls the admin API.
type Member struct {
	// Name is for the audit.
	Name string
	Role Role
	// IsLocal is set for whoever calls from this machine without credentials, where
	// no file says who may do what.
	IsLocal bool
}

// Members are those who may call the admin API, as the tokens file has them. They
// never change.
type Members struct{ holders holders[Member] }

// LiveMembers holds the tokens file in force, and replaces it when it changes.
type LiveMembers = reload.Live[Members]

// NewLiveMembers returns a LiveMembers without a value; its Reload or Watch loads
// it.
func NewLiveMembers(path string, log *slog.Logger) *LiveMembers {
	return newLive("tokens file", path, log, parseMembers)
}

var memberLevel = &yamlfile.Level{Is: "a token or certificate with its role", Fields: []yamlfile.Field{
	{Name: "name"}, {Name: "role"}, {Name: "sha256"}, {Name: "certificate"},
}}

func parseMembers(file string, data []byte) (*Members, int, error) {
	h, items, err := parse(file, data, memberLevel, memberItem())
	if err != nil {
		return nil, 0, err
	}
	return &Members{h}, items, nil
}

// memberItem returns what reads the items of a tokens file.
func memberItem() func(p *parser[Member], o *yamlfile.Object, name string) *Member {
	type first struct {
		role Role
		line int
	}
	firsts := make(map[string]first)
	return func(p *parser[Member], o *yamlfile.Object, name string) *Member {
		m := &Member{Name: name}
		v, ok := o.Field("role")
		if !ok {
			p.Bad(o.Value, "no role", "role: one of "+yamlfile.Commas(roleNames[Viewer:]))
			return m
		}
		text, ok := p.Text(v, yamlfile.Commas(roleNames[Viewer:]))
		if !ok {
			return m
		}
		if m.Role, ok = ParseRole(text); !ok {
			p.BadName(v, text, roleNames[Viewer:])
			return m
		}
		// A name may have several tokens, of which one takes the other's place. The
		// audit has nothing but the name, so it means one role.
		if f, again := firsts[name]; again && name != "" && f.role != m.Role {
			p.Bad(v, fmt.Sprintf("another role of %s than on line %d", yamlfile.Quote(name), f.line), f.role.String()+", or another name")
		} else if !again {
			firsts[name] = first{m.Role, v.Node.Line}
		}
		return m
	}
}
