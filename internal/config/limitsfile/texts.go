package limitsfile

import "github.com/ratelimitd/ratelimitd/internal/config/rules"

// LoadTexts loads texts the way Load loads the files that contain them. Its error is of
// type yamlfile.Errors.
func (o Options) LoadTexts(texts []Text) (*rules.Set, error) {
	src := new(source)
	for _, t := range texts {
		src.files = append(src.files, sourceFile{name: t.Name, data: []byte(t.Text)})
	}
	return src.rules(newLoader(o))
}
