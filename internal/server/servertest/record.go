package servertest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/record"
)

// Recording makes a server record all requests to a sink.
func Recording(to record.Sink, change ...func(*record.Options)) func(*server.Options) {
	return func(o *server.Options) {
		r := record.Options{
			Sinks: []record.Sink{to}, Allowed: 1, Denied: 1, Now: func() int64 { return o.Now().UnixMicro() },
			Thinned: prometheus.NewCounter(prometheus.CounterOpts{Name: "thinned"}),
		}
		for _, c := range change {
			c(&r)
		}
		o.Recorder = record.New(r)
	}
}

// LineSchema returns the schema in the documentation, with no room for fields that it
// does not name: readers have that room, since fields may be added, but writers do not.
func LineSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	path := inRepository(t, "docs/decisions.schema.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	closeObjects(value)
	c := jsonschema.NewCompiler()
	if err := c.AddResource(path, value); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// inRepository returns the path of a file from the folder of the package that is tested.
func inRepository(t testing.TB, path string) string {
	t.Helper()
	for range 8 {
		if _, err := os.Stat(path); err == nil {
			return path
		}
		path = filepath.Join("..", path)
	}
	t.Fatalf("the repository has no %s", path)
	return ""
}

// closeObjects makes each schema of an object in a value allow no other properties.
func closeObjects(value any) {
	switch v := value.(type) {
	case map[string]any:
		if v["type"] == "object" {
			v["additionalProperties"] = false
		}
		for _, of := range v {
			closeObjects(of)
		}
	case []any:
		for _, of := range v {
			closeObjects(of)
		}
	}
}

// Validate holds a line against the schema, and reads it as a replay does.
func Validate(s *jsonschema.Schema, line string) error {
	if err := new(decisionlog.Line).ReadJSON([]byte(line)); err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
	if err != nil {
		return err
	}
	return s.Validate(value)
}

// ValidLines is a sink that holds lines against the schema.
type ValidLines struct {
	schema *jsonschema.Schema
	mu     sync.Mutex
	wrong  []string
}

// NewValidLines returns a sink that has had no lines.
func NewValidLines(t testing.TB) *ValidLines { return &ValidLines{schema: LineSchema(t)} }

// Write implements record.Sink.
func (v *ValidLines) Write(line []byte, _ int64, _ bucket.SpanRef) {
	if err := Validate(v.schema, string(line)); err != nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.wrong = append(v.wrong, fmt.Sprintf("%s: %v", line, err))
	}
}

// Check fails t for lines since the last call.
func (v *ValidLines) Check(t *testing.T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, wrong := range v.wrong {
		t.Error(wrong)
	}
	v.wrong = nil
}
