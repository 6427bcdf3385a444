package redislog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// entry is an entry of a stream of changes.
type entry struct {
	id, previous streamID
	record       assign.Record
	keys         []string // of the states that were reset
	// named are the parts that a change named.
	named namedParts
	// isSame says that everything was as it should be: nobody needs to be told.
	isSame bool
	// through, for what was put back, is the last change included in it.
	through streamID
}

// isChange reports whether it is a change of a subject's assignment, or of the rest of a
// domain.
func (e *entry) isChange() bool {
	return e.record.Kind == assign.Assigned || e.record.Kind == assign.Unassigned
}

// kinds maps the kinds of records as the scripts write them.
var kinds = map[string]assign.RecordKind{"assigned": assign.Assigned, "unassigned": assign.Unassigned, "reset": assign.WasReset, "restored": assign.Restored}

// decodeEntry reads an entry of a tag's stream. If it fails, it returns what could be
// read up to there.
func decodeEntry(t *tag, m redis.XMessage) (entry, error) {
	var e entry
	var err error
	if e.id, err = parseID(m.ID); err != nil {
		return e, err
	}
	field := func(name string) string { text, _ := m.Values[name].(string); return text }
	if e.previous, err = parseID(field("p")); err != nil {
		return e, err
	}
	r := &e.record
	r.ID, r.Moment = recordID(t, e.id), e.id.micros()
	if r.Kind = kinds[field("kind")]; r.Kind == 0 {
		return e, fmt.Errorf("the kind of change %q is not known", field("kind"))
	}
	r.By, r.Reason = field("by"), field("reason")
	if r.Kind == assign.Restored {
		r.Restored, err = strconv.Atoi(field("n"))
		through, err2 := parseID(field("through"))
		e.through = through
		return e, errors.Join(err, err2)
	}
	var subject assign.Subject
	if err := json.Unmarshal([]byte(field("subject")), &subject); err != nil {
		return e, fmt.Errorf("the subject: %w", err)
	}
	e.named, e.isSame = decodeNamed(field("named")), field("same") != ""
	if e.isSame && r.Kind == assign.Unassigned && len(subject.Entries) == 0 {
		r.Domain = subject.Domain
		return e, nil // for the rest of a domain
	}
	if err := subject.Check(); err != nil {
		return e, fmt.Errorf("the subject: %w", err)
	}
	r.Subject = subject
	if r.Kind == assign.WasReset {
		if err := errors.Join(json.Unmarshal([]byte(field("limits")), &r.Limits), json.Unmarshal([]byte(field("keys")), &e.keys)); err != nil {
			return e, fmt.Errorf("what was reset: %w", err)
		}
		return e, nil
	}
	if text := field("before"); text != "" {
		r.Before = readable(text)
	}
	if r.Kind == assign.Assigned {
		after, err := assign.Decode([]byte(field("after")))
		if err != nil {
			return e, err
		}
		if after.Text() != r.Subject.Text() {
			return e, errors.New("the assignment is of another subject than its change")
		}
		after.ETag = m.ID
		r.After = after
	}
	return e, nil
}
