package statsd

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/cactus/go-statsd-client/v5/statsd"
)

// Rule changes the names that its pattern matches, as a mogrifier of
// envoyproxy/ratelimit does.
type Rule struct {
	pattern *regexp.Regexp
	name    string
	// tags are sorted by their keys.
	tags []statsd.Tag
}

// variable is a part of the pattern, by its number.
var variable = regexp.MustCompile(`\$\d+`)

// NewRule returns a rule. The name and the values of tags may have $1 and the like for
// the parts of the pattern, and $0 for the whole match. The error says what is wrong.
func NewRule(pattern, name string, tags map[string]string) (Rule, error) {
	if pattern == "" {
		return Rule{}, errors.New("found no pattern; allowed: a regular expression")
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return Rule{}, fmt.Errorf("found the pattern %q; allowed: a regular expression (%w)", pattern, err)
	}
	if name == "" {
		return Rule{}, errors.New("found no name; allowed: the name that it gets, with $1 for a part of the pattern")
	}
	r := Rule{pattern: re, name: name}
	texts := []string{name}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if key == "" || tags[key] == "" {
			return Rule{}, fmt.Errorf("found the tag %q with the value %q; allowed: neither empty", key, tags[key])
		}
		r.tags = append(r.tags, statsd.Tag{key, tags[key]})
		texts = append(texts, tags[key])
	}
	for _, text := range texts {
		for _, v := range variable.FindAllString(text, -1) {
			if n, err := strconv.Atoi(v[1:]); err != nil || n > re.NumSubexp() {
				return Rule{}, fmt.Errorf("found %s in %q; allowed: $0 to $%d, since the pattern has %d parts in parentheses", v, text, re.NumSubexp(), re.NumSubexp())
			}
		}
	}
	return r, nil
}

// change returns what the first matching rule makes of a name, if there is one.
func change(rules []Rule, name string) (changed string, tags []statsd.Tag, ok bool) {
	for _, r := range rules {
		parts := r.pattern.FindStringSubmatch(name)
		if parts == nil {
			continue
		}
		with := func(text string) string {
			return variable.ReplaceAllStringFunc(text, func(v string) string {
				n, _ := strconv.Atoi(v[1:]) // NewRule has read it
				return parts[n]
			})
		}
		for _, tag := range r.tags {
			tags = append(tags, tagOf(tag[0], with(tag[1])))
		}
		return with(r.name), tags, true
	}
	return name, nil, false
}
