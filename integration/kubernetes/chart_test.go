package kubernetes

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

// chart renders deploy/helm/ratelimitd with the libraries of functions and of schemas that
// Helm uses. Helm's own engine would bring all of Kubernetes' client along.
type chart struct {
	metadata  map[string]any
	defaults  map[string]any
	schema    *jsonschema.Schema
	templates map[string]string
	files     chartFiles
	isUpgrade bool
}

// chartFiles are the files of the chart that are not templates.
type chartFiles map[string]string

// Get is called by templates.
func (f chartFiles) Get(name string) string { return f[name] }

func loadChart(t *testing.T) *chart {
	t.Helper()
	c := &chart{templates: make(map[string]string), files: make(chartFiles)}
	dir := os.DirFS(filepath.Join(root, "deploy/helm/ratelimitd"))
	err := fs.WalkDir(dir, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			return err
		}
		switch {
		case name == "Chart.yaml":
			return yaml.Unmarshal(text, &c.metadata)
		case name == "values.yaml":
			return yaml.Unmarshal(text, &c.defaults)
		case name == "values.schema.json":
			c.schema, err = compileSchema(text)
			return err
		case strings.HasPrefix(name, "templates/"):
			c.templates[name] = string(text)
		default:
			c.files[name] = string(text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func compileSchema(text []byte) (*jsonschema.Schema, error) {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	const url = "file:///values.schema.json"
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(url, parsed); err != nil {
		return nil, err
	}
	return compiler.Compile(url)
}

// render returns the texts of a release, by the names of their templates.
func (c *chart) render(release string, own map[string]any) (map[string]string, error) {
	values := coalesce(c.defaults, own)
	if err := c.schema.Validate(values); err != nil {
		return nil, err
	}
	all := template.New("chart").Option("missingkey=zero")
	all.Funcs(sprig.TxtFuncMap()).Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var text strings.Builder
			err := all.ExecuteTemplate(&text, name, data)
			return text.String(), err
		},
		"toYaml": func(value any) (string, error) {
			text, err := yaml.Marshal(value)
			return strings.TrimSuffix(string(text), "\n"), err
		},
	})
	for name, text := range c.templates {
		if _, err := all.New(name).Parse(text); err != nil {
			return nil, err
		}
	}
	metadata := make(map[string]any)
	for key, value := range c.metadata { // appVersion is AppVersion in templates
		metadata[strings.ToUpper(key[:1])+key[1:]] = value
	}
	data := map[string]any{
		"Chart":   metadata,
		"Files":   c.files,
		"Release": map[string]any{"Name": release, "Namespace": "limits", "Service": "Helm", "IsInstall": !c.isUpgrade, "IsUpgrade": c.isUpgrade, "Revision": 1},
		"Values":  values,
	}
	texts := make(map[string]string)
	for name := range c.templates {
		if strings.HasPrefix(path.Base(name), "_") {
			continue
		}
		var text strings.Builder
		if err := all.ExecuteTemplate(&text, name, data); err != nil {
			return nil, err
		}
		texts[name] = strings.ReplaceAll(text.String(), "<no value>", "")
	}
	return texts, nil
}

// coalesce returns the defaults with one's own values in their place; null takes a
// default away.
func coalesce(defaults, own map[string]any) map[string]any {
	result := make(map[string]any)
	for key, value := range defaults {
		result[key] = value
	}
	for key, value := range own {
		below, isMap := value.(map[string]any)
		defaultBelow, wasMap := defaults[key].(map[string]any)
		switch {
		case value == nil:
			delete(result, key)
		case isMap && wasMap:
			result[key] = coalesce(defaultBelow, below)
		default:
			result[key] = value
		}
	}
	return result
}
