package words

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

const (
	// maxEntries is how many entries are shown.
	maxEntries = 6
	// maxText bounds what is shown of them, in bytes, so that it fits in a sentence.
	maxText = 240
)

// Entries returns entries that people know, such as those that they sent, in the form
// pasted into a command line, "tenant=acme,user=bob". If they would fill more than a few
// lines they are cut, marked by dots: the more of them are long, the shorter each is.
func Entries(entries []bucket.Entry) string {
	text := ""
	for _, longest := range []int{80, 40, 20, 10, 5} {
		if text = entriesCut(entries, longest); len(text) <= maxText {
			break
		}
	}
	return text
}

// entriesCut returns entries with keys and values of at most so many bytes.
func entriesCut(entries []bucket.Entry, longest int) string {
	shown := slices.Clone(entries[:min(len(entries), maxEntries)])
	for i := range shown {
		shown[i].Key, shown[i].Value = yamlfile.ShortenTo(shown[i].Key, longest), yamlfile.ShortenTo(shown[i].Value, longest)
	}
	text := spelling.Entries(shown)
	if len(shown) < len(entries) {
		text += ",..."
	}
	return spelling.ShellWord(text)
}
