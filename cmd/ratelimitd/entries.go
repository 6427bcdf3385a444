package main

import (
	"fmt"
	"strings"

	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// takeOf returns the request about descriptors that are written as parseEntries
// reads them.
func takeOf(domain string, args []string) (*ratelimitv1.TakeRequest, error) {
	request := &ratelimitv1.TakeRequest{Domain: domain}
	for _, arg := range args {
		entries, err := parseEntries(arg)
		if err != nil {
			return nil, err
		}
		request.Descriptors = append(request.Descriptors, &ratelimitv1.Descriptor{Entries: entries})
	}
	return request, nil
}

// parseEntries reads KEY=VALUE[,KEY=VALUE]. A backslash makes the next character
// part of a key or value.
func parseEntries(text string) ([]*ratelimitv1.Entry, error) {
	var entries []*ratelimitv1.Entry
	var key, part strings.Builder
	hasKey := false
	end := func() error {
		if !hasKey {
			return fmt.Errorf("%q: found %q; allowed: KEY=VALUE[,KEY=VALUE] and so on", text, part.String())
		}
		entries = append(entries, &ratelimitv1.Entry{Key: key.String(), Value: part.String()})
		key.Reset()
		part.Reset()
		hasKey = false
		return nil
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			part.WriteByte(text[i])
		case c == '=' && !hasKey:
			hasKey = true
			key.WriteString(part.String())
			part.Reset()
		case c == ',':
			if err := end(); err != nil {
				return nil, err
			}
		default:
			part.WriteByte(c)
		}
	}
	if err := end(); err != nil {
		return nil, err
	}
	return entries, nil
}

// These escape what would end a key or a value.
var (
	keyEscapes   = strings.NewReplacer(`\`, `\\`, ",", `\,`, "=", `\=`)
	valueEscapes = strings.NewReplacer(`\`, `\\`, ",", `\,`)
)

// formatEntries writes entries as parseEntries reads them. No two lists look alike.
func formatEntries(entries []*ratelimitv1.Entry) string {
	var s strings.Builder
	for i, e := range entries {
		if i > 0 {
			s.WriteByte(',')
		}
		s.WriteString(keyEscapes.Replace(e.GetKey()) + "=" + valueEscapes.Replace(e.GetValue()))
	}
	return s.String()
}
