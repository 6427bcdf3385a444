package top

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Questions and answers are sent between daemons as JSON. Daemons of other versions may
// have written them, so unknown fields are ignored.

// MaxAnswerBytes bounds an encoded answer.
const MaxAnswerBytes = 256 << 10

// Encode returns the question as text.
func (q Question) Encode() []byte {
	text, err := json.Marshal(q)
	if err != nil {
		panic(fmt.Sprintf("top: a question is always JSON: %v", err))
	}
	return text
}

// DecodeQuestion reads a question.
func DecodeQuestion(text []byte) (q Question, _ error) {
	if err := json.Unmarshal(text, &q); err != nil {
		return q, fmt.Errorf("no question: %w", err)
	}
	if q.Kind >= Kinds || q.Window >= windows {
		return q, fmt.Errorf("a question of the kind %d about the window %d, which this daemon does not know", q.Kind, q.Window)
	}
	return q, nil
}

// Encode returns the answer as text, with fewer counts if they would be too long.
func (a Answer) Encode() []byte {
	for maxRows := MaxRows; ; maxRows /= 2 {
		text, err := json.Marshal(a.Bounded(maxRows))
		if err != nil {
			panic(fmt.Sprintf("top: an answer is always JSON: %v", err))
		}
		if len(text) <= MaxAnswerBytes || maxRows == 0 {
			return text
		}
	}
}

// DecodeAnswer reads an answer.
func DecodeAnswer(text []byte) (a Answer, _ error) {
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("no answer: %w", err)
	}
	rows := 0
	for _, r := range a.Rules {
		rows += len(r.Summary.Counts)
		for _, c := range r.Summary.Counts {
			if c.Error > c.Count || len(c.Subject) > MaxSubject {
				return a, errors.New("no answer: it holds a count that cannot be")
			}
		}
	}
	if rows > MaxRows || len(a.Rules) > MaxRules {
		return a, fmt.Errorf("no answer: it has %d counts of %d rules", rows, len(a.Rules))
	}
	return a, nil
}

// writtenCount is a Count in JSON. Subjects are bytes, not text.
type writtenCount struct {
	Subject []byte `json:"s"`
	Count   uint64 `json:"c"`
	Error   uint64 `json:"e"`
}

// MarshalJSON implements json.Marshaler.
func (c Count) MarshalJSON() ([]byte, error) {
	return json.Marshal(writtenCount{Subject: []byte(c.Subject), Count: c.Count, Error: c.Error})
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Count) UnmarshalJSON(text []byte) error {
	var w writtenCount
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	*c = Count{Subject: string(w.Subject), Count: w.Count, Error: w.Error}
	return nil
}
