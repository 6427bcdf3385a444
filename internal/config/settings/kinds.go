package settings

import (
	"encoding/json"
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
	// auto, if not nil, is the value that is written auto.
	auto any
	// parse returns the value of a text, of the type of the field, and whether it is one.
	parse func(text string) (any, bool)
}

// found quotes a text that is no value of the kind.
func (k *kind) found(text string) string {
	if k.secret {
		return redacted
	}
	return foundText(text)
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
	if k.auto != nil && fmt.Sprint(value) == fmt.Sprint(k.auto) {
		return "auto"
	}
	switch v := value.(type) {
	case time.Duration:
		return shortDuration(v)
	case []string:
		return strings.Join(v, ",")
	case map[string]string:
		return joinPairs(v, "=")
	case HeaderSecrets:
		return joinPairs(v, ":")
	case []StatsdRule:
		if v == nil {
			return ""
		}
		return statsdRulesText(v)
	case slog.Level:
		return levelWord(v)
	case float32:
		return strconv.FormatFloat(float64(v), 'f', -1, 32)
	}
	return fmt.Sprint(value)
}

// checkedKind is a text taken as it is.
func checkedKind(word, allowed string, isAllowed func(text string) bool) kind {
	return kind{word: word, allowed: allowed, parse: func(text string) (any, bool) { return text, isAllowed(text) }}
}

// orEmpty is a kind of text, or nothing.
func orEmpty(k kind, means string) kind {
	parse := k.parse
	k.allowed += ", or empty for " + means
	k.parse = func(text string) (any, bool) {
		if text == "" {
			return "", true
		}
		return parse(text)
	}
	return k
}

// listKind is a list of texts separated by commas, or none if that is allowed.
func listKind(word, allowed string, mayBeEmpty bool, isAllowed func(item string) bool) kind {
	return kind{word: word, allowed: allowed, list: true, parse: func(text string) (any, bool) {
		if text == "" && mayBeEmpty {
			return []string(nil), true
		}
		list := strings.Split(text, ",")
		for i, item := range list {
			list[i] = strings.TrimSpace(item)
			if !isAllowed(list[i]) {
				return nil, false
			}
		}
		return list, true
	}}
}

// requiredKind is any text but the empty one. Messages call it what: "a path".
func requiredKind(what string) kind {
	return checkedKind(strings.TrimPrefix(what, "a "), what, func(text string) bool { return text != "" && !strings.ContainsRune(text, 0) })
}

var (
	pathKind   = orEmpty(requiredKind("a path"), "none")
	nameKind   = orEmpty(requiredKind("a name"), "none")
	secretKind = kind{word: "secret", allowed: "a text, or empty for none", secret: true, parse: func(text string) (any, bool) { return NewSecret(text), true }}
	boolKind   = kind{word: "bool", allowed: "true or false", parse: func(text string) (any, bool) {
		value, err := strconv.ParseBool(text)
		return value, err == nil
	}}
)

// choices are a few values of a type whose values are words.
func choices[T ~string](all ...T) kind {
	return choicesOf(func(one T) string { return string(one) }, all...)
}

// choicesOf are a few values, given the word for each.
func choicesOf[T any](word func(T) string, all ...T) kind {
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

func integers(minValue, maxValue int64) kind {
	return kind{word: "integer", allowed: fmt.Sprintf("an integer from %d to %d", minValue, maxValue), parse: func(text string) (any, bool) {
		n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
		return n, err == nil && minValue <= n && n <= maxValue && decimal.MatchString(text)
	}}
}

// ratios are numbers from 0 to 1.
func ratios(example string) kind {
	return kind{word: "number", allowed: "a number from 0 to 1" + example, parse: func(text string) (any, bool) {
		n, err := strconv.ParseFloat(text, 64)
		return n, err == nil && n >= 0 && n <= 1
	}}
}

// orAuto is a number, or auto, which is stored as a value that the number cannot have.
func orAuto(number kind, value any) kind {
	return kind{word: "auto|" + number.word, allowed: "auto or " + number.allowed, auto: value, parse: func(text string) (any, bool) {
		if text == "auto" {
			return value, true
		}
		return number.parse(text)
	}}
}

// shortDuration formats a duration without the zeros of Duration.String: 10m.
func shortDuration(d time.Duration) string {
	text := d.String()
	for _, zeros := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zeros) {
			text = text[:len(text)-2]
		}
	}
	return text
}

func durations(minValue, maxValue time.Duration) kind {
	allowed := fmt.Sprintf("a duration from %s to %s", shortDuration(minValue), shortDuration(maxValue))
	return kind{word: "duration", allowed: allowed, parse: func(text string) (any, bool) {
		d, err := time.ParseDuration(text)
		return d, err == nil && minValue <= d && d <= maxValue
	}}
}

// wordsKind is a list of some of the words, or none.
func wordsKind(words ...string) kind {
	return listKind("name,...", strings.Join(words, ", ")+", or empty", true, func(word string) bool { return slices.Contains(words, word) })
}

// unixScheme begins the address of a unix socket; an absolute path follows.
const unixScheme = "unix:"

// isAddress reports whether a text is host:port. A host may be left out, and a port be 0,
// of an address to listen on.
func isAddress(text string, listens bool) bool {
	host, port, err := net.SplitHostPort(text)
	n, notPort := strconv.ParseUint(port, 10, 16)
	return err == nil && notPort == nil && !strings.ContainsAny(host, " /@") && (listens || host != "" && n > 0)
}

var (
	listenKind = checkedKind("host:port", "host:port, or :port for all addresses, port 0 to 65535", func(text string) bool { return isAddress(text, true) })
	dialKind   = orEmpty(checkedKind("host:port", "host:port, port 1 to 65535", func(text string) bool { return isAddress(text, false) }), "none")

	addressesKind = listKind("host:port,...", "one or more host:port, port 1 to 65535, or unix:/path", false, func(address string) bool {
		path, isUnix := strings.CutPrefix(address, unixScheme)
		if isUnix {
			return strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") && !strings.ContainsRune(path, 0)
		}
		return isAddress(address, false)
	})
	certNamesKind = listKind("name,...", "DNS names, IP addresses or URIs, or empty for none", true, func(name string) bool {
		return name != "" && !strings.ContainsAny(name, " *\x00")
	})
	headerKind = checkedKind("name", yamlfile.AllowedHeaderName, yamlfile.IsHeaderName)
	// prefixKind is the start of keys in Redis. A brace in it would start a hash tag
	// before ours.
	prefixKind = checkedKind("text", "1 to 32 printable ASCII characters without spaces and braces", regexp.MustCompile(`^[!-z|~]{1,32}$`).MatchString)
	// urlPathKind is a path without what is special in a URL or to http.ServeMux.
	urlPathKind = checkedKind("path", "/ and a path of letters, digits, dots, dashes, underscores and slashes", func(text string) bool {
		return text != "" && urlPath.MatchString(text) && !strings.Contains(text+"/", "/./") && !strings.Contains(text+"/", "/../")
	})
	urlPath = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)*/?$`)

	// endpointKind is an HTTP URL without a query, or none.
	endpointKind = orEmpty(checkedKind("URL", "http://host:port or https://host:port, with a path or without", func(text string) bool {
		u, err := url.Parse(text)
		return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
	}), "none")

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
	var text strings.Builder
	write := json.NewEncoder(&text)
	write.SetEscapeHTML(false)
	if err := write.Encode(rules); err != nil {
		panic(err) // texts always encode
	}
	return strings.TrimSpace(text.String())
}

// isField reports whether a part of a setting's name, such as hash_tags, is that of a
// field.
func isField(part, field string) bool {
	return strings.EqualFold(strings.ReplaceAll(part, "_", ""), field)
}

// valueIn returns the value of a setting.
func (d *setting) valueIn(s *Settings) any {
	v := reflect.ValueOf(s).Elem()
	for part := range strings.SplitSeq(d.name, ".") {
		v = v.FieldByNameFunc(func(field string) bool { return isField(part, field) })
	}
	return v.Interface()
}
