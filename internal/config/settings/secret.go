package settings

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted is shown in place of a secret.
const redacted = "***"

// Secret is a text that no output shows: not fmt with any verb, not JSON or YAML, not a
// log. Only Reveal returns it.
//
// It holds a pointer, so even where fmt cannot call its methods, inside an
// unexported field, only an address is printed.
type Secret struct {
	text *string
}

// NewSecret keeps text; the empty text is the zero Secret.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{&text}
}

// Reveal returns the text itself.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsSet reports whether there is a secret to keep.
func (s Secret) IsSet() bool { return s.text != nil }

// String returns three stars for a secret and nothing for none.
func (s Secret) String() string {
	if s.text == nil {
		return ""
	}
	return redacted
}

// Format writes String, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText is String, for JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is String, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// HeaderSecrets maps header names to values. The values may be passwords, which no output
// shows.
type HeaderSecrets map[string]Secret
