package settings

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted stands for a secret wherever one would be shown.
const redacted = "***"

// Secret is a text that no output shows: not by fmt with any verb, not as
// JSON or YAML, not in a log. Only Reveal gives it out.
//
// It holds a pointer, so that even where fmt can't call its methods, inside
// an unexported field, no more than an address is printed.
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

// GoString is String: it answers %#v of those that ask for it by name.
func (s Secret) GoString() string { return s.String() }

// Format answers every verb with String.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText is what JSON and YAML show.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is what slog shows.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
