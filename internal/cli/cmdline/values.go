package cmdline

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Value is a flag's value that knows what is allowed.
type Value struct {
	// Kind is what help shows after the flag.
	Kind string
	// May says what is allowed.
	May string
	// Default is what help shows as the value before it is set.
	Default string
	// Read takes a text. Its error is shown only if it is a ValueError; otherwise May says
	// enough.
	Read func(text string) error
}

var _ pflag.Value = Value{}

// String implements pflag.Value.
func (v Value) String() string { return v.Default }

// Type implements pflag.Value.
func (v Value) Type() string { return v.Kind }

// Set implements pflag.Value.
func (v Value) Set(text string) error { return v.Read(text) }

// Allowed says what is allowed.
func (v Value) Allowed() string { return v.May }

// ValueError is an error that itself says what was found and what is allowed.
type ValueError struct{ Err error }

// Error implements error.
func (e ValueError) Error() string { return e.Err.Error() }

// ErrNotAllowed is the error of a value that is not allowed.
var ErrNotAllowed = errors.New("not what is allowed")

// Number is an integer from lo to hi.
func Number(to *int64, lo, hi int64) Value {
	return Value{
		Kind: "number", May: fmt.Sprintf("a whole number from %d to %d", lo, hi), Default: strconv.FormatInt(*to, 10),
		Read: func(text string) error {
			n, err := strconv.ParseInt(text, 0, 64)
			if err != nil || n < lo || n > hi {
				return ErrNotAllowed
			}
			*to = n
			return nil
		},
	}
}

// Wait is how long a command waits for an answer.
func Wait(to *time.Duration) Value {
	const shortest, longest = time.Millisecond, 24 * time.Hour
	return Value{
		Kind: "duration", May: "1ms to 24h with a unit, such as 500ms or 2s", Default: to.String(),
		Read: func(text string) error {
			d, err := time.ParseDuration(text)
			if err != nil || d < shortest || d > longest {
				return ErrNotAllowed
			}
			*to = d
			return nil
		},
	}
}

// BindWord defines a flag for one of a few words.
func BindWord(cmd *cobra.Command, to *string, words []string, flag, usage string) {
	cmd.Flags().Var(Value{
		Kind: "word", May: strings.Join(words, ", "), Default: *to,
		Read: func(text string) error {
			if !slices.Contains(words, text) {
				return ErrNotAllowed
			}
			*to = text
			return nil
		},
	}, flag, usage)
	Complete(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}
