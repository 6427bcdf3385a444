package client

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Request asks about one or several descriptors, which pass together. The client does not
// change it; it may be reused.
type Request struct {
	// Domain is the namespace of the limits; not empty.
	Domain string
	// Descriptors to ask about, at least one. A descriptor without a rule
	// passes.
	Descriptors []Descriptor
	// ID, if set, names the take, so that Settle can say afterwards what was used: 1 to 64
	// bytes that no other take has, such as a UUID.
	ID string
	// SettleWithin is how long the take can be settled, 1 us to 24 h; 0 means an hour.
	// Then its cost stands. It needs an ID.
	SettleWithin time.Duration
	// Holder is who has the slots of descriptors with a HolderKey, such as the ID of a job:
	// of up to 64 bytes, or its hash counts. Acquire makes one that no one else has if it
	// is empty, as it should be unless a holder that was lost has to be taken up again.
	Holder string
	// OnFailure, if set, replaces the client's choice.
	OnFailure Failure
}

// Descriptor is a list of entries, which a rule of the limits files matches.
type Descriptor struct {
	// Entries, at least one.
	Entries []Entry
	// HolderKey, if set, is the key of a last entry whose value is the Holder of the
	// request. The descriptor is then about slots of requests in flight.
	HolderKey string
	// Cost is how much to take from each limit of the descriptor; 0 means 1.
	Cost uint64
	// Peek takes nothing and asks whether a cost of 1 would be allowed. Cost
	// must be 0.
	Peek bool
	// Numbers, if not nil, replace those of the rule: a customer's plan, for
	// example. The limit keeps its state when its numbers change, unless they are more
	// than a bucket of the rule has.
	Numbers *Numbers
}

// Entry is one key and value of a descriptor, both valid UTF-8.
type Entry struct {
	Key, Value string
}

// E returns an Entry.
func E(key, value string) Entry { return Entry{Key: key, Value: value} }

// Numbers of a limit. Its algorithm is that of the rule.
type Numbers struct {
	// Requests per Period, at most 2^52; 0 denies always.
	Requests uint64
	// Period is 1 ms to 366 days, in whole milliseconds.
	Period time.Duration
	// Burst is the capacity of a bucket; Requests if it is 0. Only for
	// token_bucket, gcra and leaky_bucket.
	Burst uint64
}

// check refuses a request that would break the message that it shares with others. The
// daemon checks everything else.
func (r *Request) check() error {
	if r.Domain == "" {
		return errors.New("client: domain is empty")
	}
	if !utf8.ValidString(r.Domain) {
		return fmt.Errorf("client: domain: found %q; allowed: UTF-8", r.Domain)
	}
	if len(r.Descriptors) == 0 {
		return errors.New("client: descriptors is empty; a request has at least one")
	}
	for i := range r.Descriptors {
		d := &r.Descriptors[i]
		if err := d.check(); err != nil {
			return fmt.Errorf("client: descriptors[%d].%w", i, err)
		}
		if d.HolderKey != "" && (r.Holder == "" || !utf8.ValidString(r.Holder)) {
			return fmt.Errorf("client: holder: found %q beside descriptors[%d].holder_key; allowed: UTF-8, and none only for Acquire, TryAcquire and Do", r.Holder, i)
		}
	}
	if err := r.OnFailure.Err(); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if r.SettleWithin < 0 || r.SettleWithin != 0 && r.ID == "" {
		return fmt.Errorf("client: settle_within: found %s and the ID %q; allowed: more than 0, beside an ID", r.SettleWithin, r.ID)
	}
	return checkID(r.ID)
}

func (d *Descriptor) check() error {
	if len(d.Entries) == 0 && d.HolderKey == "" {
		return errors.New("entries is empty; a descriptor has at least one")
	}
	if !utf8.ValidString(d.HolderKey) {
		return fmt.Errorf("holder_key: found %q; allowed: UTF-8", d.HolderKey)
	}
	if d.Peek && d.Cost != 0 {
		return fmt.Errorf("cost: found %d; a peek has none", d.Cost)
	}
	for i, e := range d.Entries {
		if !utf8.ValidString(e.Key) {
			return fmt.Errorf("entries[%d].key: found %q; allowed: UTF-8", i, e.Key)
		}
		if !utf8.ValidString(e.Value) {
			return fmt.Errorf("entries[%d].value: found %q; allowed: UTF-8", i, e.Value)
		}
	}
	return nil
}
