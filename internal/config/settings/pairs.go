package settings

import (
	"maps"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// HeaderSecrets maps header names to values. The values may be passwords, which no output
// shows.
type HeaderSecrets map[string]Secret

// dialSetting is an address to dial, or none.
func dialSetting() settingKind[string] {
	return textKind("host:port", "host:port, port 1 to 65535, or empty for none", func(text string) *settingComplaint {
		if text == "" {
			return nil
		}
		if strings.HasPrefix(text, unixScheme) || strings.HasPrefix(text, "/") {
			return complain(text)
		}
		return checkAddress(text)
	})
}

// pairsSetting is key=value,key=value or nothing.
func pairsSetting() settingKind[map[string]string] {
	return settingKind[map[string]string]{
		word: "key=value,...", allowed: "key=value,key=value,..., or empty for none", form: listForm,
		show: func(pairs map[string]string) string {
			var list []string
			for _, key := range slices.Sorted(maps.Keys(pairs)) {
				list = append(list, key+"="+pairs[key])
			}
			return strings.Join(list, ",")
		},
		parse: func(text string) (map[string]string, *settingComplaint) {
			pairs, ok := splitPairs(text, "=")
			if !ok {
				return nil, complain(text)
			}
			return pairs, nil
		},
	}
}

// headersSetting is name:value,name:value or nothing.
func headersSetting() settingKind[HeaderSecrets] {
	return settingKind[HeaderSecrets]{
		word: "name:value,...", allowed: "name:value,name:value,..., or empty for none", secret: true,
		show: func(headers HeaderSecrets) string {
			var list []string
			for _, name := range slices.Sorted(maps.Keys(headers)) {
				list = append(list, name+":"+headers[name].String())
			}
			return strings.Join(list, ",")
		},
		parse: func(text string) (HeaderSecrets, *settingComplaint) {
			pairs, ok := splitPairs(text, ":")
			if !ok {
				return nil, &settingComplaint{found: redacted, hint: "as name:value, with a comma between two"}
			}
			var headers HeaderSecrets
			for name, value := range pairs {
				name = strings.ToLower(name)
				if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) || strings.HasPrefix(name, "grpc-") || strings.HasSuffix(name, "-bin") {
					return nil, &settingComplaint{found: redacted, hint: "with names and values that HTTP allows; names do not begin with grpc- nor end with -bin"}
				}
				if headers == nil {
					headers = make(HeaderSecrets)
				}
				headers[name] = NewSecret(value)
			}
			return headers, nil
		},
	}
}

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
