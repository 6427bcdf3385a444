package main

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
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

// parseEntries reads entries as the command line has them: KEY=VALUE[,KEY=VALUE].
func parseEntries(text string) ([]*ratelimitv1.Entry, error) {
	parsed, err := spelling.ParseEntries(text)
	if err != nil {
		return nil, err
	}
	entries := make([]*ratelimitv1.Entry, len(parsed))
	for i, e := range parsed {
		entries[i] = &ratelimitv1.Entry{Key: e.Key, Value: e.Value}
	}
	return entries, nil
}

// formatEntries writes entries as parseEntries reads them. No two lists look alike.
func formatEntries(entries []*ratelimitv1.Entry) string {
	plain := make([]bucket.Entry, len(entries))
	for i, e := range entries {
		plain[i] = bucket.Entry{Key: e.GetKey(), Value: e.GetValue()}
	}
	return spelling.Entries(plain)
}

// subjectWord writes entries for a terminal, from which a person pastes them into a
// command.
func subjectWord(entries []*ratelimitv1.Entry) string {
	return spelling.ShellWord(formatEntries(entries))
}
