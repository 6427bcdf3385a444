package forwardauth

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"

	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Live holds the file in force and replaces it when it changes.
type Live = reload.Live[File]

// NewLive returns a Live without a file; its Reload or Watch loads it.
func NewLive(path string, log *slog.Logger) *Live {
	return reload.New("forward auth endpoints", path, log, reload.File(read, parse))
}

// Warnings returns a warning for each endpoint whose domain is in no limits file.
func (f *File) Warnings(hasDomain func(name string) bool) []yamlfile.Warning {
	var warnings []yamlfile.Warning
	for _, e := range f.Endpoints {
		if !hasDomain(e.Domain) {
			at := e.domainAt
			warnings = append(warnings, yamlfile.Warning{File: e.File, Line: at.Line, Column: at.Column, Path: at.Path.String(),
				Text: "no limits have the domain " + yamlfile.Quote(e.Domain) + ", so nothing is limited"})
		}
	}
	return warnings
}

// WriteTable writes the endpoints for people to read.
func (f *File) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, e := range f.Endpoints {
		var descriptors []string
		for _, d := range e.Descriptors {
			var keys []string
			for _, entry := range d.Entries {
				keys = append(keys, yamlfile.Printable(entry.Key))
			}
			descriptors = append(descriptors, strings.Join(keys, " / "))
		}
		fmt.Fprintf(t, "/auth/%s\tfor %s\tdomain %s\t%s\tdenied with %d\n",
			e.Name, e.Proxy, yamlfile.Printable(e.Domain), strings.Join(descriptors, ", "), e.DeniedStatus)
	}
	return t.Flush()
}
