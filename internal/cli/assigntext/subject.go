package assigntext

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// SubjectArgument says what is missing if no subject is given.
const SubjectArgument = "whom it is for, such as tenant=acme"

// ParseTake returns the request for descriptors written as ParseEntries reads them.
func ParseTake(domain string, args []string) (*ratelimitv1.TakeRequest, error) {
	request := &ratelimitv1.TakeRequest{Domain: domain}
	for _, arg := range args {
		entries, err := ParseEntries(arg)
		if err != nil {
			return nil, err
		}
		request.Descriptors = append(request.Descriptors, &ratelimitv1.Descriptor{Entries: entries})
	}
	return request, nil
}

// ParseEntries reads entries as written on the command line: KEY=VALUE[,KEY=VALUE].
func ParseEntries(text string) ([]*ratelimitv1.Entry, error) {
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

// FormatEntries formats entries as ParseEntries reads them. No two lists look alike.
func FormatEntries(entries []*ratelimitv1.Entry) string {
	plain := make([]bucket.Entry, len(entries))
	for i, e := range entries {
		plain[i] = bucket.Entry{Key: e.GetKey(), Value: e.GetValue()}
	}
	return spelling.Entries(plain)
}

// EntriesWord formats entries for a terminal, to be pasted into a command.
func EntriesWord(entries []*ratelimitv1.Entry) string {
	return spelling.ShellWord(FormatEntries(entries))
}

// SubjectText names a subject; its entries can be pasted into a command.
func SubjectText(domain string, entries []*ratelimitv1.Entry) string {
	return EntriesWord(entries) + " of " + yamlfile.Printable(domain)
}
