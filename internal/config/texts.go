package config

import (
	"crypto/sha256"

	"github.com/ratelimitd/ratelimitd/internal/config/reload"
)

// RulesOf loads texts as LoadRules loads the files that have them. Its error is of
// type yamlfile.Errors.
func (o LoadOptions) RulesOf(texts []Text) (*Rules, error) {
	src := new(source)
	for _, t := range texts {
		src.files = append(src.files, sourceFile{name: t.Name, data: []byte(t.Text)})
	}
	return src.rules(newLoader(o))
}

// NewFixedLive returns a Live that has these rules in force for good.
func NewFixedLive(rules *Rules) *Live {
	l := LoadOptions{}.NewFedLive("fixed", nil)
	if err := l.Replace(reload.Files[Rules]{
		Digest: [sha256.Size]byte{1},
		Parse:  func(*Rules) (*Rules, []any, error) { return rules, nil, nil },
	}); err != nil {
		panic(err) // Parse returns none
	}
	return l
}
