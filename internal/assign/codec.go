package assign

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Text returns the text that identifies a subject in a store. No two subjects share one.
func (s *Subject) Text() string {
	return string(bucket.AppendSubject(nil, s.Domain, s.Entries))
}

// Encode returns an assignment without its ETag as JSON, for Decode.
func Encode(a *Assignment) []byte {
	text, _ := json.Marshal(a) // cannot fail
	return text
}

// Decode reads what Encode wrote; the ETag is for the store to set. It fails on anything
// else, such as the output of a later version: half of an assignment must not take effect.
func Decode(text []byte) (*Assignment, error) {
	a := new(Assignment)
	if err := decodeStrictly(text, a); err != nil {
		return nil, fmt.Errorf("not an assignment: %w", err)
	}
	if err := a.Check(); err != nil {
		return nil, fmt.Errorf("not a valid assignment: %w", err)
	}
	a.normalize()
	return a, nil
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

// storedRecord is a record as stores keep it.
type storedRecord struct {
	Record
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// EncodeRecord returns a record without its ID as JSON, for DecodeRecord.
func EncodeRecord(r *Record) []byte {
	s := storedRecord{Record: *r}
	if r.Before != nil {
		s.Before = Encode(r.Before)
	}
	if r.After != nil {
		s.After = Encode(r.After)
	}
	text, _ := json.Marshal(s) // cannot fail
	return text
}

// DecodeRecord reads what EncodeRecord wrote of the record with an ID. A record that was
// written without its moment gets the given one.
func DecodeRecord(text []byte, id string, moment int64) (Record, error) {
	var s storedRecord
	if err := json.Unmarshal(text, &s); err != nil {
		return Record{}, fmt.Errorf("not a record: %w", err)
	}
	r := s.Record
	r.ID, r.Moment = id, cmp.Or(r.Moment, moment)
	var err error
	if s.Before != nil {
		r.Before, err = Decode(s.Before)
	}
	if s.After != nil && err == nil {
		if r.After, err = Decode(s.After); err == nil {
			r.After.Stamp(r.ID, r.Moment)
		}
	}
	if err != nil {
		r.Before, r.After = nil, nil
	}
	return r, nil
}
