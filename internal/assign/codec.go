package assign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// stored is an assignment as stores keep it.
type stored struct {
	ETag string `json:"etag,omitempty"`
	Assignment
	// Ends is what Assignment.Ends returns, for scripts that do not know the rest.
	Ends int64 `json:"ends,omitempty"`
}

func storedOf(a *Assignment) *stored { return &stored{a.ETag, *a, a.Ends()} }

// Encode returns an assignment with its ETag as JSON, for Decode.
func Encode(a *Assignment) []byte {
	// Nothing in it can fail to be encoded.
	text, _ := json.Marshal(storedOf(a))
	return text
}

// Decode reads what Encode wrote. It fails on anything else, such as what a later
// version wrote: half of what is meant is not to be in force.
func Decode(text []byte) (*Assignment, error) {
	s, ok := decodeUsual(string(text))
	if !ok {
		var err error
		if s, err = decodeAny(text); err != nil {
			return nil, err
		}
	}
	if err := s.Assignment.Check(); err != nil {
		return nil, fmt.Errorf("not a valid assignment: %w", err)
	}
	s.Assignment.ETag = s.ETag
	s.Terms = s.Terms.Canonical()
	return &s.Assignment, nil
}

func decodeAny(text []byte) (*stored, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var s stored
	if err := d.Decode(&s); err != nil {
		return nil, fmt.Errorf("not an assignment: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("not an assignment: more than one value")
	}
	return &s, nil
}

// Text returns what names a subject in a store. No two subjects share one.
func (s *Subject) Text() string {
	return string(bucket.AppendSubject(nil, s.Domain, s.Entries))
}

// storedRecord is a record as stores keep it.
type storedRecord struct {
	Moment int64   `json:"moment"`
	Before *stored `json:"before,omitempty"`
	After  *stored `json:"after,omitempty"`
	Record
}

func storedOrNil(a *Assignment) *stored {
	if a == nil {
		return nil
	}
	return storedOf(a)
}

func (s *stored) orNil() *Assignment {
	if s == nil {
		return nil
	}
	s.Assignment.ETag = s.ETag
	return &s.Assignment
}

// EncodeRecord returns a record without its ID as JSON, for DecodeRecord.
func EncodeRecord(r *Record) []byte {
	text, _ := json.Marshal(storedRecord{r.Moment, storedOrNil(r.Before), storedOrNil(r.After), *r})
	return text
}

// DecodeRecord reads what EncodeRecord wrote.
func DecodeRecord(text []byte) (Record, error) {
	var s storedRecord
	if err := json.Unmarshal(text, &s); err != nil {
		return Record{}, fmt.Errorf("not a record: %w", err)
	}
	s.Record.Moment, s.Record.Before, s.Record.After = s.Moment, s.Before.orNil(), s.After.orNil()
	return s.Record, nil
}
