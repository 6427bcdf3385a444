package settings

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/statsd"
)

// kind is what settings with the same values have in common.
type kind struct {
	word    string // what help puts after the flag: "duration"
	allowed string // the allowed values, in words
	secret  bool
	// list is set if YAML may have a list, and a flag may be given several times.
	list bool
	// auto, if not empty, is how the value that is written auto prints.
	auto string
	// parse returns the value of a text, and whether it is one.
	parse func(text string) (any, bool)
}

// kindOf returns the kind of a field, by its type and tags.
func kindOf(f reflect.StructField) (k kind) {
	lo, hi := f.Tag.Get("min"), f.Tag.Get("max")
	switch reflect.Zero(f.Type).Interface().(type) {
	case bool:
		k = boolKind
	case int, int64:
		k = integers(lo, hi)
	case time.Duration:
		k = durations(lo, hi)
	case float32, float64:
		k = ratioKind
	case Secret:
		k = secretKind
	case HeaderSecrets:
		k = headersKind
	case map[string]string:
		k = pairsKind
	case []StatsdRule:
		k = statsdRulesKind
	case slog.Level:
		k = choices(levelWord, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError)
	case bucket.FailureMode:
		k = choices(bucket.FailureMode.String, bucket.FailureModes()...)
	default:
		k = textKind(f)
	}
	if auto := f.Tag.Get("auto"); auto != "" {
		number := k
		k.word, k.allowed, k.auto = "auto|"+k.word, "auto or "+k.allowed, auto
		k.parse = func(text string) (any, bool) {
			if text == "auto" {
				return auto, true
			}
			return number.parse(text)
		}
	}
	return k
}

// textKind returns the kind of a field that is a text or a list of texts.
func textKind(f reflect.StructField) kind {
	words := strings.Split(f.Tag.Get("of"), "|")
	text, known := textKinds[f.Tag.Get("is")]
	isList := f.Type.Kind() == reflect.Slice
	if !known && !isList {
		return choices(func(word string) string { return word }, words...)
	} else if !known {
		text = textOf{"name", strings.Join(words, ", "), func(word string) bool { return slices.Contains(words, word) }}
	}
	k := kind{word: text.word, allowed: text.allowed, parse: func(s string) (any, bool) { return s, text.isAllowed(s) }}
	if isList {
		k = listOf(text)
	}
	if empty := f.Tag.Get("empty"); empty != "" {
		parse := k.parse
		k.allowed += ", or empty for " + empty
		k.parse = func(text string) (any, bool) {
			if text == "" {
				return reflect.Zero(f.Type).Interface(), true
			}
			return parse(text)
		}
	}
	return k
}

// textOf is what texts have in common.
type textOf struct {
	word, allowed string
	isAllowed     func(text string) bool
}

// listOf is a list of texts separated by commas.
func listOf(item textOf) kind {
	return kind{word: item.word + ",...", allowed: item.allowed, list: true, parse: func(text string) (any, bool) {
		list := strings.Split(text, ",")
		for i, one := range list {
			list[i] = strings.TrimSpace(one)
			if !item.isAllowed(list[i]) {
				return nil, false
			}
		}
		return list, true
	}}
}

// unixScheme begins the address of a unix socket; an absolute path follows.
const unixScheme = "unix:"

// textKinds are the kinds of texts, by their names in tags.
var textKinds = map[string]textOf{
	"path":           {"path", "a path", isSomething},
	"name":           {"name", "a name", isSomething},
	"header":         {"name", yamlfile.AllowedHeaderName, yamlfile.IsHeaderName},
	"listen address": {"host:port", "host:port, or :port for all addresses, port 0 to 65535", func(text string) bool { return isAddress(text, true) }},
	"address":        {"host:port", "host:port, port 1 to 65535", func(text string) bool { return isAddress(text, false) }},
	"server address": {"host:port", "one or more host:port, port 1 to 65535, or unix:/path", func(text string) bool {
		path, isUnix := strings.CutPrefix(text, unixScheme)
		return !isUnix && isAddress(text, false) || isUnix && strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") && isSomething(path)
	}},
	"certificate name": {"name", "DNS names, IP addresses or URIs", func(name string) bool {
		return isSomething(name) && !strings.ContainsAny(name, " *")
	}},
	// A brace would start a hash tag before that of the key.
	"prefix": {"text", "1 to 32 printable ASCII characters without spaces and braces", regexp.MustCompile(`^[!-z|~]{1,32}$`).MatchString},
	// A path without what is special in a URL or to http.ServeMux.
	"URL path": {"path", "/ and a path of letters, digits, dots, dashes, underscores and slashes", func(text string) bool {
		return text != "" && urlPath.MatchString(text) && !strings.Contains(text+"/", "/./") && !strings.Contains(text+"/", "/../")
	}},
	"URL": {"URL", "http://host:port or https://host:port, with a path or without", func(text string) bool {
		u, err := url.Parse(text)
		return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
	}},
}

var urlPath = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)*/?$`)

func isSomething(text string) bool { return text != "" && !strings.ContainsRune(text, 0) }

// isAddress reports whether a text is host:port. A host may be left out, and a port be 0,
// of an address to listen on.
func isAddress(text string, listens bool) bool {
	host, port, err := net.SplitHostPort(text)
	n, notPort := strconv.ParseUint(port, 10, 16)
	return err == nil && notPort == nil && !strings.ContainsAny(host, " /@") && (listens || host != "" && n > 0)
}

// foundText quotes a value for a message. It cuts a long one, and hides the text before
// an @: a URL with a password often stands where an address belongs.
func foundText(text string) string {
	const maxRunes = 60
	if i := strings.LastIndexByte(text, '@'); i >= 0 {
		text = redacted + text[i:]
	}
	if runes := []rune(text); len(runes) > maxRunes {
		text = string(runes[:maxRunes]) + "..."
	}
	return strconv.Quote(text)
}

// show returns a value as text, secrets as stars.
func (k *kind) show(value any) string {
	switch v := value.(type) {
	case []string:
		return strings.Join(v, ",")
	case map[string]string:
		return joinPairs(v, "=")
	case HeaderSecrets:
		return joinPairs(v, ":")
	case []StatsdRule:
		return statsdRulesText(v)
	case slog.Level:
		return levelWord(v)
	}
	text := fmt.Sprint(value)
	if k.auto != "" && text == k.auto {
		return "auto"
	}
	return text
}

// choices are a few values, given the word for each.
func choices[T any](word func(T) string, all ...T) kind {
	words := make([]string, len(all))
	for i, one := range all {
		words[i] = word(one)
	}
	last := len(words) - 1
	return kind{word: strings.Join(words, "|"), allowed: strings.Join(words[:last], ", ") + " or " + words[last], parse: func(text string) (any, bool) {
		i := slices.Index(words, text)
		if i < 0 {
			return nil, false
		}
		return all[i], true
	}}
}

// levelWord is a slog level as spelled in log.level.
func levelWord(level slog.Level) string { return strings.ToLower(level.String()) }

// decimal matches a number that means the same to YAML, Go and a reader. It does not
// match 010, which is eight in YAML.
var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*(_[0-9]+)*)$`)

func parseInteger(text string) (int64, error) {
	if !decimal.MatchString(text) {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
}

func integers(lo, hi string) kind { return numbers("integer", "an", lo, hi, parseInteger) }

func durations(lo, hi string) kind { return numbers("duration", "a", lo, hi, time.ParseDuration) }

// numbers are those of a range, given as texts.
func numbers[T cmp.Ordered](word, article, lo, hi string, parse func(string) (T, error)) kind {
	first, err := parse(lo)
	last, err2 := parse(hi)
	if err = errors.Join(err, err2); err != nil {
		panic(err)
	}
	return kind{word: word, allowed: fmt.Sprintf("%s %s from %s to %s", article, word, lo, hi), parse: func(text string) (any, bool) {
		n, err := parse(text)
		return n, err == nil && first <= n && n <= last
	}}
}

var (
	boolKind = kind{word: "bool", allowed: "true or false", parse: func(text string) (any, bool) {
		value, err := strconv.ParseBool(text)
		return value, err == nil
	}}
	ratioKind = kind{word: "number", allowed: "a number from 0 to 1", parse: func(text string) (any, bool) {
		n, err := strconv.ParseFloat(text, 64)
		return n, err == nil && n >= 0 && n <= 1
	}}
	secretKind = kind{word: "secret", allowed: "a text, or empty for none", secret: true, parse: func(text string) (any, bool) { return NewSecret(text), true }}
	// pairsKind is key=value,key=value or nothing.
	pairsKind = kind{word: "key=value,...", allowed: "key=value,key=value,..., or empty for none", list: true, parse: func(text string) (any, bool) {
		return splitPairs(text, "=")
	}}
	// headersKind is name:value,name:value or nothing.
	headersKind = kind{word: "name:value,...", allowed: "name:value,name:value,..., with names and values that HTTP allows, or empty for none; names do not begin with grpc- nor end with -bin",
		secret: true, parse: parseHeaders}
	// statsdRulesKind is a list of rules in JSON, or nothing.
	statsdRulesKind = kind{word: "JSON", parse: parseStatsdRules,
		allowed: `a text with a list in JSON, each item {"pattern": EXPRESSION, "name": NAME, "tags": {KEY: VALUE}}, or empty for none`}
)

// splitPairs splits a list of pairs. It returns nil for an empty text, and false
// if a pair has no name or no separator.
func splitPairs(text, separator string) (pairs map[string]string, ok bool) {
	if text == "" {
		return nil, true
	}
	pairs = make(map[string]string)
	for _, pair := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(pair, separator)
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsRune(pair, 0) {
			return nil, false
		}
		pairs[name] = strings.TrimSpace(value)
	}
	return pairs, true
}

func joinPairs[V any](pairs map[string]V, separator string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		list = append(list, key+separator+fmt.Sprint(pairs[key]))
	}
	return strings.Join(list, ",")
}

func parseHeaders(text string) (any, bool) {
	pairs, ok := splitPairs(text, ":")
	var headers HeaderSecrets
	for name, value := range pairs {
		name = strings.ToLower(name)
		ok = ok && httpguts.ValidHeaderFieldName(name) && httpguts.ValidHeaderFieldValue(value) && !strings.HasPrefix(name, "grpc-") && !strings.HasSuffix(name, "-bin")
		if headers == nil {
			headers = make(HeaderSecrets)
		}
		headers[name] = NewSecret(value)
	}
	return headers, ok
}

func parseStatsdRules(text string) (any, bool) {
	var rules []StatsdRule
	if text == "" {
		return rules, true
	}
	read := json.NewDecoder(strings.NewReader(text))
	read.DisallowUnknownFields()
	if read.Decode(&rules) != nil || read.More() {
		return nil, false
	}
	return rules, !slices.ContainsFunc(rules, func(r StatsdRule) bool {
		_, err := statsd.NewRule(r.Pattern, r.Name, r.Tags)
		return err != nil
	})
}

// statsdRulesText returns rules as the setting spells them.
func statsdRulesText(rules []StatsdRule) string {
	if rules == nil {
		return ""
	}
	var text strings.Builder
	write := json.NewEncoder(&text)
	write.SetEscapeHTML(false)
	if err := write.Encode(rules); err != nil {
		panic(err) // texts always encode
	}
	return strings.TrimSpace(text.String())
}
