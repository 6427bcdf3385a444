package assign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// stored is an assignment as stores keep it, in one of two forms.
//
// Form 1 has a field for each kind of part and one end for everything except the block.
// All versions read it, so it is written wherever it can express the assignment. Form 2
// has Parts instead of these fields. A part and its end are separate texts: whatever
// merges parts need not understand them, and loses nothing. Versions that only know form
// 1 treat form 2 as damaged, and those that do not know a part treat all of it as that.
type stored struct {
	ETag    string         `json:"etag,omitempty"`
	Domain  string         `json:"domain"`
	Entries []bucket.Entry `json:"entries"`

	Plan         string    `json:"plan,omitempty"`
	Numbers      []Numbers `json:"numbers,omitempty"`
	Unlimited    bool      `json:"unlimited,omitempty"`
	Blocked      bool      `json:"blocked,omitempty"`
	BlockedUntil int64     `json:"blocked_until,omitempty"`
	// Until is when everything except the block ends.
	Until int64 `json:"until,omitempty"`

	// Parts maps a part's name to its text and its end in decimal, or empty. The names
	// are "plan", whose text is the plan's name; "unlimited" and "block", whose text is
	// "true"; "calendar", whose text is Calendar in JSON; and "limit " with the name of a
	// limit, whose text is Numbers in JSON without the name.
	Parts map[string][]string `json:"parts,omitempty"`

	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	At     int64  `json:"at,omitempty"`
	// Ends is what Assignment.LastEnd returns, for scripts that do not know the rest.
	Ends int64 `json:"ends,omitempty"`
}

// Names and texts of parts.
const (
	PartPlan      = "plan"
	PartCalendar  = "calendar"
	PartUnlimited = "unlimited"
	PartBlock     = "block"
	PartLimit     = "limit " // followed by the limit's name

	partTrue = "true"
)

// Part is a part of an assignment as in form 2.
type Part struct{ Name, Text, Until string }

// Parts returns the parts of an assignment.
func (a *Assignment) Parts() (all []Part) {
	add := func(name, text string, until int64) {
		p := Part{Name: name, Text: text}
		if until != 0 {
			p.Until = strconv.FormatInt(until, 10)
		}
		all = append(all, p)
	}
	if a.Blocked {
		add(PartBlock, partTrue, a.BlockedUntil)
	}
	if a.Unlimited {
		add(PartUnlimited, partTrue, a.UnlimitedUntil)
	}
	for i, n := range a.Numbers {
		name := PartLimit + n.Limit
		n.Limit = ""
		text, _ := json.Marshal(n) // cannot fail
		add(name, string(text), a.NumbersEnd(i))
	}
	if a.Calendar != (Calendar{}) {
		text, _ := json.Marshal(a.Calendar) // cannot fail
		add(PartCalendar, string(text), a.CalendarUntil)
	}
	if a.Plan != "" {
		add(PartPlan, a.Plan, a.PlanUntil)
	}
	return all
}

// storedOf returns an assignment in form 1 if that can express it, otherwise in form 2.
func storedOf(a *Assignment) *stored {
	s := &stored{ETag: a.ETag, Domain: a.Domain, Entries: a.Entries, Reason: a.Reason, By: a.By, At: a.At, Ends: a.LastEnd()}
	until, together := a.Until()
	if together && a.Calendar == (Calendar{}) && !(a.Unlimited && (a.Plan != "" || len(a.Numbers) > 0)) {
		s.Plan, s.Numbers, s.Unlimited, s.Until = a.Plan, a.Numbers, a.Unlimited, until
		s.Blocked, s.BlockedUntil = a.Blocked, a.BlockedUntil
		return s
	}
	s.Parts = make(map[string][]string)
	for _, p := range a.Parts() {
		s.Parts[p.Name] = []string{p.Text, p.Until}
	}
	return s
}

// assignment returns what is stored. It fails on parts that it does not know.
func (s *stored) assignment() (*Assignment, error) {
	a := &Assignment{Subject: Subject{Domain: s.Domain, Entries: s.Entries}, Reason: s.Reason, By: s.By, At: s.At, ETag: s.ETag}
	a.Plan, a.Numbers, a.Unlimited, a.Blocked = s.Plan, s.Numbers, s.Unlimited, s.Blocked
	if s.Parts == nil {
		switch {
		case s.Until != 0 && !a.HasMore():
			return nil, errors.New("not a valid assignment: an end of nothing but a block")
		case a.Unlimited && (a.Plan != "" || len(a.Numbers) > 0):
			return nil, errors.New("not a valid assignment: unlimited beside a plan or numbers, in the form without parts")
		}
		a.EndRest(s.Until)
		a.BlockedUntil = s.BlockedUntil
		return a, nil
	}
	if a.Blocked || a.HasMore() || s.Until != 0 || s.BlockedUntil != 0 {
		return nil, errors.New("not a valid assignment: parts beside what the form without parts has")
	}
	for name, part := range s.Parts {
		if err := a.addPart(name, part); err != nil {
			return nil, fmt.Errorf("not a valid assignment: part %.100q: %w", name, err)
		}
	}
	return a, nil
}

// addPart adds a part of form 2.
func (a *Assignment) addPart(name string, part []string) error {
	if len(part) != 2 {
		return fmt.Errorf("%d texts, where 2 are expected", len(part))
	}
	until := int64(0)
	if part[1] != "" {
		var err error
		if until, err = strconv.ParseInt(part[1], 10, 64); err != nil || until <= 0 {
			return fmt.Errorf("the end %.100q", part[1])
		}
	}
	limit, isLimit := strings.CutPrefix(name, PartLimit)
	switch {
	case isLimit:
		n := Numbers{Limit: limit}
		if err := decodeStrictly([]byte(part[0]), &n); err != nil {
			return err
		}
		if n.Limit != limit {
			return fmt.Errorf("the name of a limit in it, %.100q", n.Limit)
		}
		a.Numbers, a.NumbersUntil = append(a.Numbers, n), append(a.NumbersUntil, until)
	case name == PartCalendar:
		if err := decodeStrictly([]byte(part[0]), &a.Calendar); err != nil {
			return err
		}
		if a.Calendar == (Calendar{}) {
			return errors.New("it says nothing")
		}
		a.CalendarUntil = until
	case name == PartPlan:
		a.Plan, a.PlanUntil = part[0], until
	case (name == PartUnlimited || name == PartBlock) && part[0] != partTrue:
		return fmt.Errorf("the text %.100q", part[0])
	case name == PartUnlimited:
		a.Unlimited, a.UnlimitedUntil = true, until
	case name == PartBlock:
		a.Blocked, a.BlockedUntil = true, until
	default:
		return errors.New("it is not known")
	}
	return nil
}

// Encode returns an assignment with its ETag as JSON, for Decode.
func Encode(a *Assignment) []byte {
	// Encoding it cannot fail.
	text, _ := json.Marshal(storedOf(a))
	return text
}

// Decode reads what Encode wrote. It fails on anything else, such as the output of a
// later version: half of an assignment must not take effect.
func Decode(text []byte) (*Assignment, error) {
	s, ok := decodeUsual(string(text))
	if !ok {
		var err error
		if s, err = decodeAny(text); err != nil {
			return nil, err
		}
	}
	a, err := s.assignment()
	if err != nil {
		return nil, err
	}
	if err := a.Check(); err != nil {
		return nil, fmt.Errorf("not a valid assignment: %w", err)
	}
	*a = a.Canonical()
	return a, nil
}

func decodeAny(text []byte) (*stored, error) {
	s := new(stored)
	if err := decodeStrictly(text, s); err != nil {
		return nil, fmt.Errorf("not an assignment: %w", err)
	}
	return s, nil
}

// decodeStrictly reads one JSON value without unknown fields.
func decodeStrictly(text []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one value")
	}
	return nil
}

// Text returns the text that identifies a subject in a store. No two subjects share one.
func (s *Subject) Text() string {
	return string(bucket.AppendSubject(nil, s.Domain, s.Entries))
}

// storedRecord is a record as stores keep it.
type storedRecord struct {
	Moment int64           `json:"moment"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	Record
}

// EncodeRecord returns a record without its ID as JSON, for DecodeRecord.
func EncodeRecord(r *Record) []byte {
	s := storedRecord{Moment: r.Moment, Record: *r}
	if r.Before != nil {
		s.Before = Encode(r.Before)
	}
	if r.After != nil {
		s.After = Encode(r.After)
	}
	text, _ := json.Marshal(s)
	return text
}

// DecodeRecord reads what EncodeRecord wrote. An assignment in it that cannot be read,
// such as one from a later version, is nil.
func DecodeRecord(text []byte) (Record, error) {
	var s storedRecord
	if err := json.Unmarshal(text, &s); err != nil {
		return Record{}, fmt.Errorf("not a record: %w", err)
	}
	s.Record.Moment = s.Moment
	if s.Before != nil {
		s.Record.Before, _ = Decode(s.Before)
	}
	if s.After != nil {
		s.Record.After, _ = Decode(s.After)
	}
	return s.Record, nil
}
