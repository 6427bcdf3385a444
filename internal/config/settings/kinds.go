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
	// parse returns the value of a text, of the type of the field.
	parse func(text string) (any, *complaint)
}

// complaint says why a value is refused.
type complaint struct {
	found string // the value as it may be shown
	hint  string // how to write it, if known
}

func complain(text string) *complaint { return &complaint{found: foundText(text)} }

func complainWith(text, hint string) *complaint {
	return &complaint{found: foundText(text), hint: hint}
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

// checkedKind is a text taken as it is. check complains about one that is not allowed.
func checkedKind(word, allowed string, check func(text string) *complaint) kind {
	return kind{word: word, allowed: allowed, parse: func(text string) (any, *complaint) { return text, check(text) }}
}

// listKind is a list of texts separated by commas, or none if that is allowed. check
// complains about an item that is not.
func listKind(word, allowed string, mayBeEmpty bool, check func(item string) *complaint) kind {
	return kind{word: word, allowed: allowed, list: true, parse: func(text string) (any, *complaint) {
		if text == "" && mayBeEmpty {
			return []string(nil), nil
		}
		list := strings.Split(text, ",")
		for i, item := range list {
			list[i] = strings.TrimSpace(item)
			if c := check(list[i]); c != nil {
				return nil, c
			}
		}
		return list, nil
	}}
}

// textKind is any text. Messages call it what: "a path".
func textKind(what string, required bool) kind {
	allowed := what
	if !required {
		allowed += ", or empty for none"
	}
	return checkedKind(strings.TrimPrefix(what, "a "), allowed, func(text string) *complaint {
		switch {
		case required && text == "":
			return complain(text)
		case strings.ContainsRune(text, 0): // the error of a system call would help less
			return complainWith(text, "without NUL")
		}
		return nil
	})
}

var (
	pathKind = textKind("a path", false)
	nameKind = textKind("a name", false)

	secretKind = kind{word: "secret", allowed: "a text, or empty for none", secret: true,
		parse: func(text string) (any, *complaint) { return NewSecret(text), nil }}

	boolKind = kind{word: "bool", allowed: "true or false", parse: func(text string) (any, *complaint) {
		value, err := strconv.ParseBool(text)
		if err != nil {
			return nil, complain(text)
		}
		return value, nil
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
	return kind{word: strings.Join(words, "|"), allowed: strings.Join(words[:last], ", ") + " or " + words[last], parse: func(text string) (any, *complaint) {
		if i := slices.Index(words, text); i >= 0 {
			return all[i], nil
		}
		if slices.Contains(words, strings.ToLower(text)) {
			return nil, complainWith(text, "in lower case")
		}
		return nil, complain(text)
	}}
}

// levelWord is a slog level as spelled in log.level.
func levelWord(level slog.Level) string { return strings.ToLower(level.String()) }

// decimal matches a number that means the same to YAML, Go and a reader. It does not
// match 010, which is eight in YAML.
var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*(_[0-9]+)*)$`)

func integers(minValue, maxValue int64) kind {
	return kind{word: "integer", allowed: fmt.Sprintf("an integer from %d to %d", minValue, maxValue), parse: func(text string) (any, *complaint) {
		n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
		if err != nil || n < minValue || n > maxValue || !decimal.MatchString(text) {
			return nil, complain(text)
		}
		return n, nil
	}}
}

// ratios are numbers from 0 to 1.
func ratios(example string) kind {
	return kind{word: "number", allowed: "a number from 0 to 1" + example, parse: func(text string) (any, *complaint) {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n >= 0 && n <= 1) { // also NaN
			return nil, complain(text)
		}
		return n, nil
	}}
}

// orAuto is a number, or auto, which is stored as a value that the number cannot have.
func orAuto(number kind, value any) kind {
	const auto = "auto"
	return kind{word: auto + "|" + number.word, allowed: auto + " or " + number.allowed, auto: value, parse: func(text string) (any, *complaint) {
		switch {
		case text == auto:
			return value, nil
		case strings.EqualFold(text, auto):
			return nil, complainWith(text, "in lower case")
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
	return kind{word: "duration", allowed: allowed, parse: func(text string) (any, *complaint) {
		d, err := time.ParseDuration(text)
		if err == nil && minValue <= d && d <= maxValue {
			return d, nil
		}
		if _, err := strconv.ParseFloat(text, 64); err == nil && text != "0" {
			return nil, complainWith(text, fmt.Sprintf("with its unit, such as %sms or %ss", text, text))
		}
		return nil, complain(text)
	}}
}

// endpointKind is an HTTP URL without a query, or none.
var endpointKind = checkedKind("URL", "http://host:port or https://host:port, with a path or without, or empty for none", func(text string) *complaint {
	u, err := url.Parse(text)
	if text != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		return complain(text)
	}
	return nil
})

// wordsKind is a list of some of the words, or none.
func wordsKind(words ...string) kind {
	return listKind("name,...", strings.Join(words, ", ")+", or empty", true, func(word string) *complaint {
		if !slices.Contains(words, word) {
			return complain(word)
		}
		return nil
	})
}

// unixScheme begins the address of a unix socket; an absolute path follows.
const unixScheme = "unix:"

// listenKind is an address to listen on. A port of 0 lets the system choose one.
func listenKind(mayBeOff bool) kind {
	allowed := "host:port, or :port for all addresses, port 0 to 65535"
	if mayBeOff {
		allowed += ", or empty for off"
	}
	return checkedKind("host:port", allowed, func(text string) *complaint {
		if text == "" && mayBeOff {
			return nil
		}
		return checkHostPort(text, true, "", "8081")
	})
}

// checkHostPort complains about a text that is not host:port. host and port stand in the
// hint for what is missing.
func checkHostPort(text string, listens bool, host, port string) *complaint {
	h, p, err := net.SplitHostPort(text)
	if err != nil || strings.ContainsAny(h, " /@") || h == "" && !listens {
		hint := ""
		if _, err := strconv.ParseUint(text, 10, 16); err == nil {
			hint = "such as " + host + ":" + text
		} else if strings.Contains(text, "://") {
			hint = "without a scheme"
		} else if net.ParseIP(text) != nil && strings.Contains(text, ":") {
			hint = "such as [" + text + "]:" + port
		}
		return complainWith(text, hint)
	}
	if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 && !listens {
		return complain(text)
	}
	return nil
}

var (
	// dialKind is an address to dial, or none.
	dialKind = checkedKind("host:port", "host:port, port 1 to 65535, or empty for none", func(text string) *complaint {
		if text == "" {
			return nil
		}
		return checkHostPort(text, false, "127.0.0.1", "6379")
	})
	addressesKind = listKind("host:port,...", "one or more host:port, port 1 to 65535, or unix:/path", false, func(address string) *complaint {
		path, isUnix := strings.CutPrefix(address, unixScheme)
		switch {
		case isUnix && (!strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsRune(path, 0)):
			return complainWith(address, "with an absolute path, such as unix:/run/redis.sock")
		case isUnix:
			return nil
		case strings.HasPrefix(address, "/"):
			return complainWith(address, "such as "+unixScheme+address)
		}
		return checkHostPort(address, false, "127.0.0.1", "6379")
	})
	certNamesKind = listKind("name,...", "DNS names, IP addresses or URIs, or empty for none", true, func(name string) *complaint {
		if name == "" || strings.ContainsAny(name, " *\x00") {
			return complain(name)
		}
		return nil
	})
	headerKind = checkedKind("name", yamlfile.AllowedHeaderName, func(text string) *complaint {
		if !yamlfile.IsHeaderName(text) {
			return complain(text)
		}
		return nil
	})
	// prefixKind is the start of keys in Redis. A brace in it would start a hash tag
	// before ours.
	prefixKind = matchedKind("text", "1 to 32 printable ASCII characters without spaces and braces", `^[!-z|~]{1,32}$`)
	// urlPathKind is a path without what is special in a URL or to http.ServeMux.
	urlPathKind = checkedKind("path", "/ and a path of letters, digits, dots, dashes, underscores and slashes", func(text string) *complaint {
		up := slices.ContainsFunc(strings.Split(text, "/"), func(part string) bool { return part == "." || part == ".." })
		if text == "" || up || !urlPath.MatchString(text) {
			return complain(text)
		}
		return nil
	})
	urlPath = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)*/?$`)
)

// matchedKind is a text that matches a regular expression.
func matchedKind(word, allowed, expression string) kind {
	re := regexp.MustCompile(expression)
	return checkedKind(word, allowed, func(text string) *complaint {
		if !re.MatchString(text) {
			return complain(text)
		}
		return nil
	})
}

var (
	// pairsKind is key=value,key=value or nothing.
	pairsKind = kind{word: "key=value,...", allowed: "key=value,key=value,..., or empty for none", list: true, parse: func(text string) (any, *complaint) {
		pairs, ok := splitPairs(text, "=")
		if !ok {
			return nil, complain(text)
		}
		return pairs, nil
	}}
	// headersKind is name:value,name:value or nothing.
	headersKind = kind{word: "name:value,...", allowed: "name:value,name:value,..., or empty for none", secret: true, parse: func(text string) (any, *complaint) {
		pairs, ok := splitPairs(text, ":")
		if !ok {
			return nil, &complaint{found: redacted, hint: "as name:value, with a comma between two"}
		}
		var headers HeaderSecrets
		for name, value := range pairs {
			name = strings.ToLower(name)
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) || strings.HasPrefix(name, "grpc-") || strings.HasSuffix(name, "-bin") {
				return nil, &complaint{found: redacted, hint: "with names and values that HTTP allows; names do not begin with grpc- nor end with -bin"}
			}
			if headers == nil {
				headers = make(HeaderSecrets)
			}
			headers[name] = NewSecret(value)
		}
		return headers, nil
	}}
	// statsdRulesKind is a list of rules in JSON, or nothing.
	statsdRulesKind = kind{word: "JSON", parse: parseStatsdRules,
		allowed: `a text with a list in JSON, each item {"pattern": EXPRESSION, "name": NAME, "tags": {KEY: VALUE}}, or empty for none`}
)

// splitPairs splits a list of pairs. It returns nil for an empty text, and false
// if a pair has no name or no separator.
func splitPairs(text, separator string) (map[string]string, bool) {
	if text == "" {
		return nil, true
	}
	pairs := make(map[string]string)
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

func parseStatsdRules(text string) (any, *complaint) {
	var rules []StatsdRule
	if text == "" {
		return rules, nil
	}
	read := json.NewDecoder(strings.NewReader(text))
	read.DisallowUnknownFields()
	if err := read.Decode(&rules); err != nil || read.More() {
		return nil, complain(text)
	}
	for i, r := range rules {
		if _, err := statsd.NewRule(r.Pattern, r.Name, r.Tags); err != nil {
			return nil, complainWith(text, fmt.Sprintf("with rule %d mended: %s", i+1, err))
		}
	}
	return rules, nil
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
