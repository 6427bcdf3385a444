package settings

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// setting is one row of the table.
type setting struct {
	name      string // as in "redis.hash_tags"
	byDefault string
	help      string
	word      string // what help puts after the flag: "duration"
	allowed   string // the allowed values, in words
	form      settingForm
	secret    bool
	// parse checks a value and returns a function that stores it in its field.
	parse func(text string) (assign func(*Settings), complaint *settingComplaint)
	// show returns the field as text; stars for a secret.
	show func(*Settings) string
}

// flag returns the name of the setting's flag, without dashes.
func (d *setting) flag() string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(d.name)
}

// variable returns the name of the setting's environment variable.
func (d *setting) variable() string {
	return settingsPrefix + strings.ToUpper(strings.ReplaceAll(d.name, ".", "_"))
}

// settingForm is the form that a value must have in YAML.
type settingForm int

const (
	textForm     settingForm = iota // any scalar, as written
	boolForm                        // true or false, without quotes
	integerForm                     // a number without quotes
	durationForm                    // a text; a number is read too, to complain about its unit
	listForm                        // a list of scalars, or one text with commas
)

// settingComplaint says why a value is refused.
type settingComplaint struct {
	found string // the value as it may be shown
	hint  string // what to do, if known
}

// settingKind is what settings of the same type have in common.
type settingKind[T any] struct {
	word    string
	allowed string
	form    settingForm
	secret  bool
	parse   func(text string) (T, *settingComplaint)
	show    func(T) string
}

func defineSetting[T any](name string, kind settingKind[T], byDefault, help string, field func(*Settings) *T) setting {
	return setting{
		name: name, byDefault: byDefault, help: help,
		word: kind.word, allowed: kind.allowed, form: kind.form, secret: kind.secret,
		parse: func(text string) (func(*Settings), *settingComplaint) {
			value, complaint := kind.parse(text)
			if complaint != nil {
				return nil, complaint
			}
			return func(s *Settings) { *field(s) = value }, nil
		},
		show: func(s *Settings) string { return kind.show(*field(s)) },
	}
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

func complain(text string) *settingComplaint {
	return &settingComplaint{found: foundText(text)}
}

func complainWith(text, hint string) *settingComplaint {
	return &settingComplaint{found: foundText(text), hint: hint}
}

// textKind is text taken as it is. check complains about a text that is not allowed.
func textKind(word, allowed string, check func(text string) *settingComplaint) settingKind[string] {
	return settingKind[string]{
		word: word, allowed: allowed,
		show:  func(s string) string { return s },
		parse: func(text string) (string, *settingComplaint) { return text, check(text) },
	}
}

// listKind is a list of texts separated by commas, or none if that is allowed. check
// complains about an item that is not.
func listKind(word, allowed string, mayBeEmpty bool, check func(item string) *settingComplaint) settingKind[[]string] {
	return settingKind[[]string]{
		word: word, allowed: allowed, form: listForm,
		show: func(list []string) string { return strings.Join(list, ",") },
		parse: func(text string) ([]string, *settingComplaint) {
			if text == "" && mayBeEmpty {
				return nil, nil
			}
			list := strings.Split(text, ",")
			for i, item := range list {
				list[i] = strings.TrimSpace(item)
				if complaint := check(list[i]); complaint != nil {
					return nil, complaint
				}
			}
			return list, nil
		},
	}
}

// textSetting is any text. Messages call it what: "a path".
func textSetting(what string, required bool) settingKind[string] {
	allowed := what
	if !required {
		allowed += ", or empty for none"
	}
	return textKind(strings.TrimPrefix(what, "a "), allowed, func(text string) *settingComplaint {
		if required && text == "" {
			return complain(text)
		}
		// No path or name contains one, and the error of a system call would help less.
		if strings.ContainsRune(text, 0) {
			return complainWith(text, "without NUL")
		}
		return nil
	})
}

func secretSetting() settingKind[Secret] {
	return settingKind[Secret]{
		word: "secret", allowed: "a text, or empty for none", secret: true,
		parse: func(text string) (Secret, *settingComplaint) { return NewSecret(text), nil },
		show:  Secret.String,
	}
}

func boolSetting() settingKind[bool] {
	return settingKind[bool]{
		word: "bool", allowed: "true or false", form: boolForm, show: strconv.FormatBool,
		parse: func(text string) (bool, *settingComplaint) {
			value, err := strconv.ParseBool(text)
			if err != nil {
				return false, complain(text)
			}
			return value, nil
		},
	}
}

// decimal matches a number that means the same to YAML, Go and a reader. It does not
// match 010, which is eight in YAML.
var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*(_[0-9]+)*)$`)

func integerSetting[T int | int64](minValue, maxValue T) settingKind[T] {
	return settingKind[T]{
		word: "integer", allowed: fmt.Sprintf("an integer from %d to %d", minValue, maxValue), form: integerForm,
		show: func(n T) string { return strconv.FormatInt(int64(n), 10) },
		parse: func(text string) (T, *settingComplaint) {
			if !decimal.MatchString(text) {
				return 0, complain(text)
			}
			n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
			if err != nil || n < int64(minValue) || n > int64(maxValue) {
				return 0, complain(text)
			}
			return T(n), nil
		},
	}
}

// ratioSetting is a number from 0 to 1. YAML may quote it.
func ratioSetting[T float32 | float64](bits int) settingKind[T] {
	return settingKind[T]{
		word: "number", allowed: "a number from 0 to 1, such as 0.8",
		show: func(n T) string { return strconv.FormatFloat(float64(n), 'f', -1, bits) },
		parse: func(text string) (T, *settingComplaint) {
			n, err := strconv.ParseFloat(text, bits)
			if err != nil || !(n >= 0 && n <= 1) { // also NaN
				return 0, complain(text)
			}
			return T(n), nil
		},
	}
}

// autoSetting is a number, or auto, which is 0. YAML may quote either.
func autoSetting(minValue, maxValue int) settingKind[int] {
	return orAuto(integerSetting(minValue, maxValue), 0)
}

// autoRatioSetting is a number from 0 to 1, or auto, which is -1.
func autoRatioSetting() settingKind[float64] {
	number := ratioSetting[float64](64)
	number.allowed = "a number from 0 to 1"
	return orAuto(number, -1)
}

// orAuto is a number, or auto, which is stored as a value that the number cannot have.
func orAuto[T comparable](number settingKind[T], value T) settingKind[T] {
	const auto = "auto"
	return settingKind[T]{
		word: auto + "|" + number.word, allowed: auto + " or " + number.allowed,
		show: func(n T) string {
			if n == value {
				return auto
			}
			return number.show(n)
		},
		parse: func(text string) (n T, c *settingComplaint) {
			switch {
			case text == auto:
				return value, nil
			case strings.EqualFold(text, auto):
				return n, complainWith(text, "in lower case")
			}
			return number.parse(text)
		},
	}
}

// endpointSetting is an HTTP URL without a query, or none.
func endpointSetting() settingKind[string] {
	const allowed = "http://host:port or https://host:port, with a path or without, or empty for none"
	return textKind("URL", allowed, func(text string) *settingComplaint {
		if text == "" {
			return nil
		}
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return complain(text)
		}
		return nil
	})
}

// wordsSetting is a list of some of the words, or none.
func wordsSetting(words ...string) settingKind[[]string] {
	return listKind("name,...", strings.Join(words, ", ")+", or empty", true, func(word string) *settingComplaint {
		if !slices.Contains(words, word) {
			return complain(word)
		}
		return nil
	})
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

func durationSetting(minValue, maxValue time.Duration) settingKind[time.Duration] {
	return settingKind[time.Duration]{
		word: "duration", form: durationForm, show: shortDuration,
		allowed: fmt.Sprintf("a duration from %s to %s", shortDuration(minValue), shortDuration(maxValue)),
		parse: func(text string) (time.Duration, *settingComplaint) {
			d, err := time.ParseDuration(text)
			if err == nil && minValue <= d && d <= maxValue {
				return d, nil
			}
			if _, err := strconv.ParseFloat(text, 64); err == nil && text != "0" {
				return 0, complainWith(text, fmt.Sprintf("with its unit, such as %sms or %ss", text, text))
			}
			return 0, complain(text)
		},
	}
}

// addressHint says how to write host:port, for common mistakes. host and port stand in
// for a missing part.
func addressHint(text, host, port string) string {
	if _, err := strconv.ParseUint(text, 10, 16); err == nil {
		return "such as " + host + ":" + text
	}
	if strings.Contains(text, "://") {
		return "without a scheme"
	}
	if net.ParseIP(text) != nil && strings.Contains(text, ":") {
		return "such as [" + text + "]:" + port
	}
	return ""
}

// listenSetting is an address to listen on. A port of 0 lets the system
// choose one.
func listenSetting(mayBeOff bool) settingKind[string] {
	allowed := "host:port, or :port for all addresses, port 0 to 65535"
	if mayBeOff {
		allowed += ", or empty for off"
	}
	return textKind("host:port", allowed, func(text string) *settingComplaint {
		if text == "" && mayBeOff {
			return nil
		}
		host, port, err := net.SplitHostPort(text)
		if err != nil || strings.ContainsAny(host, " /@") {
			return complainWith(text, addressHint(text, "", "8081"))
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return complain(text)
		}
		return nil
	})
}

// unixScheme begins the address of a unix socket; an absolute path follows.
const unixScheme = "unix:"

// urlPath matches paths without characters that are special in a URL or to http.ServeMux.
var urlPath = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)*/?$`)

func urlPathSetting() settingKind[string] {
	const allowed = "/ and a path of letters, digits, dots, dashes, underscores and slashes"
	return textKind("path", allowed, func(text string) *settingComplaint {
		up := slices.ContainsFunc(strings.Split(text, "/"), func(part string) bool { return part == "." || part == ".." })
		if text == "" || up || !urlPath.MatchString(text) {
			return complain(text)
		}
		return nil
	})
}

// addressesSetting is a list of addresses to dial.
func addressesSetting() settingKind[[]string] {
	return listKind("host:port,...", "one or more host:port, port 1 to 65535, or unix:/path", false, checkAddress)
}

// checkAddress complains about a text that is not an address to dial.
func checkAddress(address string) *settingComplaint {
	if path, ok := strings.CutPrefix(address, unixScheme); ok {
		if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsRune(path, 0) {
			return complainWith(address, "with an absolute path, such as unix:/run/redis.sock")
		}
		return nil
	}
	if strings.HasPrefix(address, "/") {
		return complainWith(address, "such as "+unixScheme+address)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || strings.ContainsAny(host, " /@") {
		return complainWith(address, addressHint(address, "127.0.0.1", "6379"))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return complain(address)
	}
	return nil
}

// namesSetting is a list of names for a certificate, or none.
func namesSetting() settingKind[[]string] {
	return listKind("name,...", "DNS names, IP addresses or URIs, or empty for none", true, func(name string) *settingComplaint {
		if name == "" || strings.ContainsAny(name, " *\x00") {
			return complain(name)
		}
		return nil
	})
}

// prefixSetting is the start of keys in Redis. A brace in it would start a hash tag
// before ours.
func prefixSetting() settingKind[string] {
	return textKind("text", "1 to 32 printable ASCII characters without spaces and braces", func(text string) *settingComplaint {
		ok := 1 <= len(text) && len(text) <= 32
		for _, c := range []byte(text) {
			ok = ok && '!' <= c && c <= '~' && c != '{' && c != '}'
		}
		if !ok {
			return complain(text)
		}
		return nil
	})
}

// headerSetting is the name of an HTTP header.
func headerSetting() settingKind[string] {
	return textKind("name", yamlfile.AllowedHeaderName, func(text string) *settingComplaint {
		if !yamlfile.IsHeaderName(text) {
			return complain(text)
		}
		return nil
	})
}
