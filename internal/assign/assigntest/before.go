package assigntest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Before is an assignment as read and written by the versions that do not know parts.
type Before struct {
	ETag         string           `json:"etag,omitempty"`
	Domain       string           `json:"domain"`
	Entries      []bucket.Entry   `json:"entries"`
	Plan         string           `json:"plan,omitempty"`
	Numbers      []assign.Numbers `json:"numbers,omitempty"`
	Unlimited    bool             `json:"unlimited,omitempty"`
	Blocked      bool             `json:"blocked,omitempty"`
	BlockedUntil int64            `json:"blocked_until,omitempty"`
	Until        int64            `json:"until,omitempty"`
	Reason       string           `json:"reason,omitempty"`
	By           string           `json:"by,omitempty"`
	At           int64            `json:"at,omitempty"`
	Ends         int64            `json:"ends,omitempty"`
}

// DecodeBefore reads an assignment as those versions do. What they treat as damaged is an
// error.
func DecodeBefore(text []byte) (*Before, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var b Before
	if err := d.Decode(&b); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("more than one value")
	}
	hasMore := b.Plan != "" || b.Unlimited || len(b.Numbers) > 0
	switch {
	case !hasMore && !b.Blocked:
		return nil, errors.New("none of plan, numbers, unlimited and blocked")
	case b.BlockedUntil != 0 && !b.Blocked:
		return nil, errors.New("blocked_until without blocked")
	case b.Unlimited && (b.Plan != "" || len(b.Numbers) > 0):
		return nil, errors.New("unlimited beside a plan or numbers")
	case b.Until != 0 && b.Blocked && !hasMore:
		return nil, errors.New("until beside a block alone")
	}
	return &b, nil
}

// Says returns what is wrong with b as what such a version reads of an assignment, or "".
func (b *Before) Says(a *assign.Assignment) string {
	own := assign.Assignment{
		Subject: assign.Subject{Domain: b.Domain, Entries: b.Entries},
		Terms:   assign.Terms{Plan: b.Plan, Numbers: b.Numbers, Unlimited: b.Unlimited, Blocked: b.Blocked},
		Reason:  b.Reason, By: b.By, At: b.At, ETag: b.ETag,
	}
	if own.HasMore() {
		own.EndRest(b.Until)
	}
	own.BlockedUntil = b.BlockedUntil
	if got, want := fmt.Sprintf("%+v", own.Canonical()), fmt.Sprintf("%+v", a.Canonical()); got != want || b.Ends != a.LastEnd() {
		return fmt.Sprintf("read as %s, which ends at %d, want %s, at %d", got, b.Ends, want, a.LastEnd())
	}
	return ""
}

// WrongForm returns what is wrong with the form in which an assignment is written, or "":
// versions that do not know parts must be able to read it wherever they can express it.
func WrongForm(text []byte, a *assign.Assignment) string {
	before, err := DecodeBefore(text)
	_, together := a.Until()
	sayable := together && a.Calendar == (assign.Calendar{}) && (!a.Unlimited || a.Plan == "" && len(a.Numbers) == 0)
	switch {
	case sayable && err != nil:
		return fmt.Sprintf("%s: versions before parts cannot read it: %v", text, err)
	case sayable:
		return before.Says(a)
	case err == nil:
		return fmt.Sprintf("%s: versions before parts read it as %+v", text, before)
	}
	again, err := assign.Decode(text)
	if err != nil || fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", a) {
		return fmt.Sprintf("%s is read as %+v, %v", text, again, err)
	}
	return ""
}

// RandomAssignment returns an assignment of varying shape, for a subject of a change of
// Model.RandomChange.
func RandomAssignment(r *rand.Rand) *assign.Assignment {
	for {
		c := Model{}.RandomChange(r, 1_780_000_000_000_000)
		if a := c.Assignment.Canonical(); c.Sets() {
			a.At, a.ETag = 1+r.Int64N(assign.MaxMoment), "17-1"
			return &a
		}
	}
}

// WrittenBefore returns the assignments in the test data written by the version that did
// not know parts, by the value of their entry, without ETag and time.
func WrittenBefore() map[string]*assign.Assignment {
	const until = 9_000_000_000_000_001
	all := make(map[string]*assign.Assignment)
	add := func(value string, terms assign.Terms, ends assign.Ends) {
		all[value] = &assign.Assignment{Subject: Subject("api", value), Terms: terms, Ends: ends, By: "ann", Reason: "asked"}
	}
	add("plan", assign.Terms{Plan: "pro"}, assign.Ends{})
	add("plan until", assign.Terms{Plan: `a/b "<é>"`}, assign.Ends{PlanUntil: until})
	add("numbers", assign.Terms{Plan: "pro", Numbers: []assign.Numbers{
		{Requests: 5}, {Limit: "month/<é>", Requests: 1<<32 - 1, Period: 366 * 24 * time.Hour, Burst: 1<<32 - 1},
	}}, assign.Ends{PlanUntil: until, NumbersUntil: []int64{until, until}})
	add("unlimited", assign.Terms{Unlimited: true}, assign.Ends{UnlimitedUntil: until})
	add("blocked", assign.Terms{Blocked: true}, assign.Ends{})
	add("blocked until", assign.Terms{Plan: "pro", Blocked: true}, assign.Ends{PlanUntil: until, BlockedUntil: until + 1})
	return all
}

// WrongWrittenBefore returns how a table differs from WrittenBefore, or "".
func WrongWrittenBefore(table *assign.Table) string {
	want := WrittenBefore()
	for value, a := range want {
		got := table.Get(Subject("api", value))
		if got == nil {
			return fmt.Sprintf("%s is not there", value)
		}
		got.At, got.ETag = 0, ""
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", a) {
			return fmt.Sprintf("got %+v, want %+v", got, a)
		}
	}
	if table.Len() != len(want) {
		return fmt.Sprintf("%d assignments, want %d", table.Len(), len(want))
	}
	return ""
}
