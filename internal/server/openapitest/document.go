// Package openapitest reads the OpenAPI document of an API, and holds answers and
// messages of protobuf against it. It imports servertest.
package openapitest

import (
	"net/http"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// Document is the part of an OpenAPI document that the tests read. It is read
// strictly, so the file has no other parts.
type Document struct {
	OpenAPI    string                          `yaml:"openapi"`
	Info       map[string]string               `yaml:"info"`
	Paths      map[string]map[string]Operation `yaml:"paths"`
	Components struct {
		Responses map[string]Response `yaml:"responses"`
		Schemas   map[string]*Schema  `yaml:"schemas"`
	} `yaml:"components"`
}

// Operation is what a path does with one method.
type Operation struct {
	ID         string `yaml:"operationId"`
	Summary    string `yaml:"summary"`
	Parameters []struct {
		Name        string  `yaml:"name"`
		In          string  `yaml:"in"`
		Description string  `yaml:"description"`
		Schema      *Schema `yaml:"schema"`
	} `yaml:"parameters"`
	RequestBody struct {
		Required bool    `yaml:"required"`
		Content  Content `yaml:"content"`
	} `yaml:"requestBody"`
	Responses map[string]Response `yaml:"responses"`
}

// Response is an answer, or a reference to one.
type Response struct {
	Ref         string `yaml:"$ref"`
	Description string `yaml:"description"`
	Headers     map[string]struct {
		Description string  `yaml:"description"`
		Schema      *Schema `yaml:"schema"`
	} `yaml:"headers"`
	Content Content `yaml:"content"`
}

// Content maps media types.
type Content map[string]struct {
	Schema  *Schema `yaml:"schema"`
	Example any     `yaml:"example"`
}

// Schema is what a value in JSON looks like, or a reference to one.
type Schema struct {
	Ref         string             `yaml:"$ref"`
	Type        string             `yaml:"type"`
	Format      string             `yaml:"format"`
	Description string             `yaml:"description"`
	Examples    []string           `yaml:"examples"`
	Pattern     string             `yaml:"pattern"`
	Enum        []string           `yaml:"enum"`
	Items       *Schema            `yaml:"items"`
	Required    []string           `yaml:"required"`
	Properties  map[string]*Schema `yaml:"properties"`
	Additional  *bool              `yaml:"additionalProperties"`
}

// Read reads the document that a page has.
func Read(t *testing.T, p servertest.Page) *Document {
	t.Helper()
	if p.Code != http.StatusOK || p.Header.Get("Content-Type") != "application/yaml" {
		t.Fatalf("%d %v", p.Code, p.Header)
	}
	var doc Document
	decoder := yaml.NewDecoder(strings.NewReader(p.Body))
	decoder.KnownFields(true)
	if err := decoder.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	return &doc
}
