package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Daemon is a daemon in the register.
type Daemon struct {
	// ID is random; each process has its own.
	ID string `json:"id"`
	// Address is the host name and gRPC port given by the daemon, for people.
	Address string `json:"address"`
	Version string `json:"version"`
	// HashTags is its redis.hash_tags.
	HashTags int `json:"hash_tags"`
	// StateFormat is the format that it writes, and Reads are the formats that it reads.
	StateFormat int   `json:"state_format"`
	Reads       []int `json:"reads"`
	// Rules is a fingerprint of the rules in force when it last signed in, see InZones; it
	// may be empty.
	Rules string `json:"rules"`
	// Zones is the version of its time zones.
	Zones string `json:"zones"`
	// Change is the ID of the last change of assignments that it had seen; it may be empty.
	Change string `json:"change,omitempty"`
	// Started and Seen are when the daemon started and when it last signed in, by the
	// clock of Redis, to the millisecond.
	Started time.Time `json:"-"`
	Seen    time.Time `json:"-"`
}

// conflictError says why a daemon must not serve.
type conflictError string

func (e conflictError) Error() string { return string(e) }

// newConflict returns the error for self, which disagrees with at least one other daemon.
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
