package assign

import (
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/zone"
)

// Calendar takes the place of what limits by calendar say of where their windows begin.
// The zero Calendar is none.
type Calendar struct {
	// TimeZone is the name of a zone; empty for the limit's own.
	TimeZone string `json:"time_zone,omitempty"`
	// Starts are as bucket.ParseStarts reads them, for the limits whose windows may begin
	// so; empty for the limit's own.
	Starts string `json:"starts,omitempty"`
}

// String says a Calendar in words: "starts 15, time zone Europe/Berlin".
func (c Calendar) String() string {
	var parts []string
	if c.Starts != "" {
		parts = append(parts, "starts "+c.Starts)
	}
	if c.TimeZone != "" {
		parts = append(parts, "time zone "+c.TimeZone)
	}
	return strings.Join(parts, ", ")
}

// ownCalendar is a Calendar in the form that decisions read.
type ownCalendar struct {
	Calendar
	// zone is nil for the limit's own, or if its name is not known.
	zone   *time.Location
	starts bucket.Starts
	// hasStarts says for which units starts are.
	hasStarts [bucket.CalendarYear + 1]bool
}

func newOwnCalendar(said Calendar) ownCalendar {
	own := ownCalendar{Calendar: said}
	if z, err := zone.Load(said.TimeZone); err == nil {
		own.zone = z
	}
	starts, units := bucket.ParseStarts(said.Starts)
	own.starts = starts
	for _, u := range units {
		own.hasStarts[u] = true
	}
	return own
}

// of returns the calendar of a limit with what is said of it.
func (o *ownCalendar) of(c bucket.Calendar) bucket.Calendar {
	if o.zone != nil {
		c.Zone = o.zone
	}
	if o.hasStarts[c.Unit] {
		c.Starts = o.starts
	}
	return c
}
