// Package schematest makes the JSON Schemas of docs/ from what the readers of files know,
// and holds files against them. It imports yamlfile.
package schematest

import (
	"bytes"
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write the schemas in docs/ anew")

// Root is the folder of the repository, as seen from a package in internal/config.
const Root = "../../../"

// Object is a part of a schema. Editors know draft 7 best.
type Object = map[string]any

// Publish checks that docs/ has this schema or, with -update, writes it there, and that a
// page of docs/ has the line by which editors find it.
func Publish(t *testing.T, name, title, page string, schema Object) {
	t.Helper()
	id := "https://raw.githubusercontent.com/ratelimitd/ratelimitd/main/docs/" + name
	schema["$schema"], schema["$id"], schema["title"] = "http://json-schema.org/draft-07/schema#", id, title
	if text, err := os.ReadFile(Root + "docs/" + page); err != nil || !bytes.Contains(text, []byte("\n# yaml-language-server: $schema="+id+"\n")) {
		t.Errorf("docs/%s has no line for editors with %s (%v)", page, id, err)
	}
	var text bytes.Buffer
	write := json.NewEncoder(&text)
	write.SetEscapeHTML(false)
	write.SetIndent("", "  ")
	if err := write.Encode(schema); err != nil {
		t.Fatal(err)
	}
	path := Root + "docs/" + name
	if *update {
		if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if published, err := os.ReadFile(path); err != nil || !bytes.Equal(published, text.Bytes()) {
		t.Errorf("%s is stale; run make schemas (%v)", path, err)
	}
}

// Schema is one of docs/.
type Schema struct{ compiled *jsonschema.Schema }

// Load returns the schema of this name in docs/.
func Load(t *testing.T, name string) Schema {
	t.Helper()
	compiled, err := jsonschema.NewCompiler().Compile(Root + "docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return Schema{compiled}
}

// Validate returns what is wrong with a file in YAML, as an editor sees it.
func (s Schema) Validate(text string) error {
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return err
	}
	asJSON, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if value, err = jsonschema.UnmarshalJSON(bytes.NewReader(asJSON)); err != nil {
		return err
	}
	return s.compiled.Validate(value)
}

// ValidateAll validates all files of the repository, and all blocks of YAML in its pages,
// that match. It returns how many there are.
func (s Schema) ValidateAll(t *testing.T, match *regexp.Regexp) (n int) {
	t.Helper()
	check := func(where, text string) {
		if !match.MatchString(text) {
			return
		}
		n++
		if err := s.Validate(text); err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")
	for _, folder := range []string{"README.md", "docs", "deploy", "examples", "integration"} {
		err := filepath.WalkDir(Root+folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			switch strings.ToLower(filepath.Ext(path)) {
			case ".yaml", ".yml":
				check(path, string(text))
			case ".md":
				for _, m := range block.FindAllStringSubmatch(string(text), -1) {
					check(path, m[1])
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}
