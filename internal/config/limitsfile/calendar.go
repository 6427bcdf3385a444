package limitsfile

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/zone"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// calendar reads the windows of a limit that has a calendar in place of a period.
func (p *reader) calendar(o *yamlfile.Object) (c bucket.Calendar, ok bool) {
	v, _ := o.Field("calendar")
	c.Unit, ok = yamlfile.OneOf(p.Reader, v, bucket.CalendarUnits()...)
	c.Zone = time.UTC
	if v, given := o.Field("time_zone"); given {
		z, good := p.timeZone(v)
		c.Zone, ok = z, ok && good
	}
	if v, given := o.Field("starts"); given {
		s, good := p.starts(v, c.Unit)
		c.Starts, ok = s, ok && good
	}
	return c, ok
}

// checkCalendar reports what goes with a calendar alone, and what does not go with one,
// except on a concurrency, see hasHold.
func (p *reader) checkCalendar(o *yamlfile.Object) {
	if p.isConcurrency(o) {
		return
	}
	if !o.Has("calendar") {
		for _, name := range [...]string{"time_zone", "starts"} {
			if o.Has(name) {
				p.Bad(o.Key(name), name+" without calendar", "it beside calendar")
			}
		}
		return
	}
	v, ok := o.Field("algorithm")
	if !ok {
		return
	}
	// Another word is reported where it is read.
	if a, err := bucket.ParseAlgorithm(p.Follow(v).Value); err == nil && a != bucket.FixedWindow {
		p.Bad(v, a.String()+" beside calendar", "no algorithm there, or "+bucket.FixedWindow.String())
	}
}

func (p *reader) timeZone(v yamlfile.Value) (*time.Location, bool) {
	s, ok := p.Text(v, "the name of a time zone, such as Europe/Berlin")
	if !ok {
		return nil, false
	}
	z, err := zone.Load(s)
	var unknown *zone.UnknownError
	if errors.As(err, &unknown) {
		p.Bad(v, "the text "+yamlfile.Quote(s), unknown.Allowed())
		return nil, false
	}
	return z, true
}

// starts reads where the windows of a unit begin, which is NoCalendar if it is wrong.
func (p *reader) starts(v yamlfile.Value, unit bucket.CalendarUnit) (bucket.Starts, bool) {
	allowed := bucket.AllowedStarts(unit)
	text, ok := p.Text(v, allowed)
	if !ok {
		return bucket.Starts{}, false
	}
	s, units := bucket.ParseStarts(text)
	switch {
	case unit == bucket.NoCalendar && len(units) > 0, slices.Contains(units, unit):
		return s, true
	case len(units) > 0:
		p.Bad(v, yamlfile.DescribeNode(p.Follow(v))+", which is of a "+strings.Join(yamlfile.NamesOf(units), " or "), allowed)
	default:
		p.Bad(v, yamlfile.DescribeNode(p.Follow(v)), allowed)
	}
	return bucket.Starts{}, false
}
