package server

import (
	"regexp"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

// statKeys returns the labels key1 and key2 of a rule with these entries.
// envoyproxy/ratelimit leaves out deeper ones, so that many limits are one series; here key2
// has them all.
func statKeys(entries []bucket.Entry) (key1, key2 string) {
	words := make([]string, len(entries))
	for i := range entries {
		words[i] = statWord(&entries[i])
	}
	return words[0], strings.Join(words[1:], ".")
}

func statWord(e *bucket.Entry) string {
	key := statName(e.Key)
	switch e.Value {
	case "":
		return key
	case tally.RestOfValues:
		return key + "|other" // no other word has a bar
	}
	return key + "_" + statName(e.Value)
}

// numbers finds runs of digits and dots, and address what looks like an IPv4 address.
var (
	numbers = regexp.MustCompile(`[0-9.]+`)
	address = regexp.MustCompile(`^\d{1,3}(\.\d{1,3}){3}$`)
	colons  = strings.NewReplacer(":", "_", "|", "_")
)

// statName returns a text as envoyproxy/ratelimit writes it in names of statistics, which
// have no colons and bars, and where dots stand between words. Only the dots of IPv4
// addresses are spelt differently there.
func statName(text string) string {
	text = colons.Replace(text)
	if strings.Count(text, ".") < 3 {
		return text
	}
	return numbers.ReplaceAllStringFunc(text, func(run string) string {
		if address.MatchString(run) {
			return strings.ReplaceAll(run, ".", "_")
		}
		return run
	})
}
