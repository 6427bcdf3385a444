package config

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"text/tabwriter"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// LiveAuth holds the file for forward auth that is in force, and replaces it
// when it changes. Its methods may be called concurrently.
type LiveAuth struct {
	reloads
	auth atomic.Pointer[Auth]
}

// NewLiveAuth returns a LiveAuth without endpoints; Reload or Watch loads them.
func NewLiveAuth(path string, log *slog.Logger) *LiveAuth {
	l := new(LiveAuth)
	l.begin("forward auth endpoints", path, log)
	return l
}

// Auth returns what is in force, or nil if nothing was ever loaded.
func (l *LiveAuth) Auth() *Auth { return l.auth.Load() }

// Reload is as that of Live.
func (l *LiveAuth) Reload() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.show()
	data, err := readAuth(l.path)
	if err != nil {
		return l.failed(err)
	}
	digest := sha256.Sum256(data)
	if l.unchanged(digest) {
		return nil
	}
	auth, err := parseAuth(l.path, data)
	if err != nil {
		return l.failed(err)
	}
	l.auth.Store(auth)
	l.replaced(digest, "endpoints", len(auth.Endpoints))
	return nil
}

// Watch is as that of Live.
func (l *LiveAuth) Watch(ctx context.Context) error { return l.watch(ctx, l.Reload) }

// Warnings tells of endpoints whose domain the rules do not have.
func (a *Auth) Warnings(r *Rules) []yamlfile.Warning {
	var warnings []yamlfile.Warning
	for _, e := range a.Endpoints {
		if r.Domain(e.Domain) == nil {
			at := e.domainAt
			warnings = append(warnings, yamlfile.Warning{File: e.File, Line: at.Line, Column: at.Column, Path: at.Path.String(),
				Text: "no limits file has the domain " + yamlfile.Quote(e.Domain) + ", so nothing is limited"})
		}
	}
	return warnings
}

// WriteTable writes the endpoints for people to read.
func (a *Auth) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, e := range a.Endpoints {
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
