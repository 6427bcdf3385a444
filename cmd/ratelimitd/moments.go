package main

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/period"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
)

const (
	allowedMoment = `a moment such as 2026-12-31T18:00:00Z, or a date such as 2026-12-31, which ends with that day in UTC`
	// momentText writes moments so that parseMoment reads them.
	momentText = time.RFC3339Nano
)

// parseMoment reads the moment at which something ends, as files have it: the same
// wherever they are read. A date stands for the end of its day, since whoever says "until
// 31 December" means that day too.
func parseMoment(text string) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day.AddDate(0, 0, 1), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("found %s; allowed: %s", foundTime(text), allowedMoment)
	}
	return t.UTC(), nil
}

// end is when something ends by itself, from --until or --for.
type end struct {
	until time.Time
	span  time.Duration
}

// moment returns the end, or nil if there is none.
func (e *end) moment(now time.Time) (*timestamppb.Timestamp, error) {
	switch {
	case e.span > 0:
		return timestamppb.New(now.Add(e.span).Truncate(time.Second)), nil
	case e.until.IsZero():
		return nil, nil
	case !e.until.After(now):
		return nil, fmt.Errorf("flag --until: found %s, which is over; allowed: a moment to come", e.until.Format(momentText))
	}
	return timestamppb.New(e.until), nil
}

// untilFlag is the flag of a moment.
type untilFlag struct{ to *end }

func (f untilFlag) String() string  { return "" }
func (f untilFlag) Type() string    { return "moment" }
func (f untilFlag) allowed() string { return allowedEnd }

func (f untilFlag) Set(text string) (err error) {
	f.to.until, err = parseEnd(text, time.Now())
	return err
}

// spanFlag is the flag of a span of time from now on.
type spanFlag struct{ to *end }

func (f spanFlag) String() string  { return "" }
func (f spanFlag) Type() string    { return "span" }
func (f spanFlag) allowed() string { return period.Allowed }

func (f spanFlag) Set(text string) error {
	d, err := period.Parse(text)
	if err != nil {
		return errors.New("not " + f.allowed())
	}
	f.to.span = d
	return nil
}

// untilText says when something ends, in the shell's time zone, and how long that is from
// now.
func untilText(at *timestamppb.Timestamp, now time.Time) string {
	t := at.AsTime()
	text := t.In(now.Location()).Format(momentText)
	if left := t.Sub(now); left > 0 {
		text += " (" + timespan.Format(left) + ")"
	}
	return text
}
