// Package subjecttext reads and writes subjects as written in a command. It imports
// spelling and the keys.
package subjecttext

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// Argument says what is missing if no subject is given.
const Argument = "whom it is for, such as tenant=acme"

// Take returns the request for descriptors written as Parse reads them.
func Take(domain string, args []string) (*ratelimitv1.TakeRequest, error) {
	request := &ratelimitv1.TakeRequest{Domain: domain}
	for _, arg := range args {
		entries, err := Parse(arg)
		if err != nil {
			return nil, err
		}
		request.Descriptors = append(request.Descriptors, &ratelimitv1.Descriptor{Entries: entries})
	}
	return request, nil
}

// Parse reads entries as written on the command line: KEY=VALUE[,KEY=VALUE].
func Parse(text string) ([]*ratelimitv1.Entry, error) {
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

// Format formats entries as Parse reads them. No two lists look alike.
func Format(entries []*ratelimitv1.Entry) string {
	plain := make([]bucket.Entry, len(entries))
	for i, e := range entries {
		plain[i] = bucket.Entry{Key: e.GetKey(), Value: e.GetValue()}
	}
	return spelling.Entries(plain)
}

// Word formats entries for a terminal, to be pasted into a command.
func Word(entries []*ratelimitv1.Entry) string {
	return spelling.ShellWord(Format(entries))
}

// Text names a subject; its entries can be pasted into a command.
func Text(domain string, entries []*ratelimitv1.Entry) string {
	return Word(entries) + " of " + yamlfile.Printable(domain)
}
