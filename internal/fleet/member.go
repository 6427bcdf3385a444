package fleet

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Daemon is a daemon in the register.
type Daemon struct {
	// ID is random and that of one process.
	ID string `json:"id"`
	// Address is the host name and gRPC port that the daemon gave, for people.
	Address string `json:"address"`
	Version string `json:"version"`
	// HashTags is its redis.hash_tags.
	HashTags int `json:"hash_tags"`
	// StateFormat is what it writes, Reads what it can read.
	StateFormat int   `json:"state_format"`
	Reads       []int `json:"reads"`
	// Rules is a fingerprint of the rules that it had in force when it signed
	// in last; it may be empty.
	Rules string `json:"rules"`
	// Started and Seen are when the daemon started and when it signed in last,
	// on the clock of Redis, to the millisecond.
	Started time.Time `json:"started"`
	Seen    time.Time `json:"seen"`
}

// entry is a Daemon as the script takes and gives it: with moments in ms.
type entry struct {
	Daemon
	// Up is only given to the script, which makes Started and Seen.
	Up      int64 `json:"up"`
	Started int64 `json:"started"`
	Seen    int64 `json:"seen"`
}

func (m Daemon) entry(up time.Duration) ([]byte, error) {
	return json.Marshal(entry{Daemon: m, Up: max(0, up.Milliseconds())})
}

// entryText makes any text one that the script takes: at most 255 bytes, no
// control characters.
func entryText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
	return strings.ToValidUTF8(s[:min(len(s), 255)], "")
}

// conflictError says why a daemon must not serve.
type conflictError string

func (e conflictError) Error() string { return string(e) }

// newConflict is for self, which disagrees with others of the prefix; there is
// one at least.
func newConflict(prefix string, self Daemon, others []Daemon) conflictError {
	other := others[0]
	text := fmt.Sprintf("redis: daemon %s (version %s) shares prefix %q with ", other.Address, other.Version, prefix)
	switch {
	case other.HashTags != self.HashTags:
		text += fmt.Sprintf("redis.hash_tags %d; this daemon (%s) has %d", other.HashTags, self.Address, self.HashTags)
	case !slices.Contains(self.Reads, other.StateFormat):
		text += fmt.Sprintf("state format %d; this daemon (%s, version %s) reads only %s",
			other.StateFormat, self.Address, self.Version, formatList(self.Reads))
	default:
		text += fmt.Sprintf("this daemon (%s, version %s), whose state format is %d, and reads only %s",
			self.Address, self.Version, self.StateFormat, formatList(other.Reads))
	}
	text += ": all daemons of a prefix must agree"
	if more := len(others) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more like it)", more)
	}
	return conflictError(text)
}

func formatList(formats []int) string { return strings.Trim(fmt.Sprint(formats), "[]") }
