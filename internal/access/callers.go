package access

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Right is what a caller may ask of limits.
type Right uint8

// Rights.
const (
	Take Right = 1 << iota
	GiveBack
	// Refund is a take with a negative cost.
	Refund
	// Numbers is to bring a limit's numbers.
	Numbers
)

var rightNames = []string{"take", "give_back", "refund", "numbers"}

// String returns the first of the rights, as a file spells it.
func (r Right) String() string {
	for i, name := range rightNames {
		if r&(1<<i) != 0 {
			return name
		}
	}
	return "nothing"
}

// Caller is a program or person that asks limits.
type Caller struct {
	Name string
	// all is whether it may ask in all domains.
	all     bool
	domains map[string]bool
	may     Right
}

// May reports whether the caller has all of these rights.
func (c *Caller) May(r Right) bool { return c.may&r == r }

// MayAsk reports whether the caller may ask about limits of a domain.
func (c *Caller) MayAsk(domain string) bool { return c.all || c.domains[domain] }

// Callers are those who may ask limits, by the callers file. They never change.
type Callers struct{ holders holders[Caller] }

// Of returns the caller with these credentials, or nil. An unknown token belongs to no caller,
// whatever certificate comes with it.
func (c *Callers) Of(shown *Credentials) *Caller {
	switch {
	case shown.Unreadable:
		return nil
	case shown.HasToken:
		return c.holders.ofToken(&shown.Digest)
	default:
		return c.holders.ofNames(shown.Names)
	}
}

// LiveCallers holds the callers file in force, and replaces it when it changes.
type LiveCallers = reload.Live[Callers]

// NewLiveCallers returns a LiveCallers without a value; its Reload or Watch loads
// it.
func NewLiveCallers(path string, log *slog.Logger) *LiveCallers {
	return reload.New("callers file", path, log, reload.File(yamlfile.ReadFile, parseCallers))
}

var callerLevel = &yamlfile.Level{Is: "a caller", Fields: []yamlfile.Field{
	{Name: "name"}, {Name: "sha256"}, {Name: "certificate"}, {Name: "domains"}, {Name: "may"},
}}

// anyDomain stands for all domains.
const anyDomain = "*"

func parseCallers(file string, data []byte) (*Callers, []any, error) {
	h, size, err := parse(file, data, callerLevel, func(p *parser[Caller], o *yamlfile.Object, name string) *Caller {
		c := &Caller{Name: name, domains: make(map[string]bool), may: Take}
		if strings.Contains(name, "/") {
			v, _ := o.Field("name")
			p.Bad(v, "a slash", "a name without one, which separates it from those of holders")
		}
		for _, item := range items(p, o, "domains", "names of domains, or [\"*\"] for all") {
			if domain, ok := p.Name(item, "a name", yamlfile.MaxName); ok {
				c.domains[domain] = true
			}
		}
		c.all = c.domains[anyDomain]
		p.Needed(o, "domains", "domains: [NAME, ...], or [\"*\"] for all")
		if o.Has("may") {
			c.may = 0
		}
		for _, item := range items(p, o, "may", yamlfile.Commas(rightNames)) {
			right, _ := yamlfile.OneOf(p.Reader, item, Take, GiveBack, Refund, Numbers)
			c.may |= right
		}
		return c
	})
	if err != nil {
		return nil, nil, err
	}
	return &Callers{h}, size, nil
}

// items returns the items of a list, which must not be empty, or none if there is no
// list.
func items[T any](p *parser[T], o *yamlfile.Object, name, of string) []yamlfile.Value {
	v, ok := o.Field(name)
	if !ok {
		return nil
	}
	list, ok := p.List(v, of)
	if ok && (list.Len() == 0 || list.Len() > maxItems) {
		p.Bad(v, fmt.Sprintf("%d items", list.Len()), fmt.Sprintf("1 to %d", maxItems))
		return nil
	}
	return slices.Collect(list.All())
}
