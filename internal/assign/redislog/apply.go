package redislog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

const (
	// maxPerCall bounds the changes of one call, so that it keeps no server for long.
	maxPerCall = 200
	// maxTogether bounds about how many changes are on their way at once.
	maxTogether = 1000
)

var errNotLoaded = errors.New("redis: the assignments are not loaded yet")

// codes has the outcomes as change.lua replies them.
var codes = [...]assign.Outcome{1: assign.Created, 2: assign.Replaced, 3: assign.Unchanged, 4: assign.Deleted, 5: assign.Conflict}

// Apply implements assign.Store. It fails, with nothing changed, if a change is not
// valid, or if the store is not loaded. It also fails if the register of daemons cannot be read, with all that is
// known in the results. Run must run.
func (s *Store) Apply(ctx context.Context, changes []assign.Change) (assign.Applied, error) {
	applied := assign.Applied{Results: make([]assign.Result, len(changes))}
	for i := range changes {
		if err := changes[i].Check(); err != nil {
			return applied, fmt.Errorf("change %d: %w", i, err)
		}
	}
	if !s.Loaded() {
		return applied, errNotLoaded
	}
	wanted, err := s.change(ctx, changes, applied.Results)
	pending, awaitErr := s.await(ctx, wanted)
	applied.Pending = pending
	return applied, errors.Join(err, awaitErr)
}

// change makes changes, and returns by tag the ID that daemons must have seen.
func (s *Store) change(ctx context.Context, changes []assign.Change, results []assign.Result) (map[*tag]streamID, error) {
	batches := make(map[*tag][]int) // indices of changes
	room := s.o.MaxAssignments - s.table.Len()
	isNew := make(map[string]bool)
	for i := range changes {
		c := &changes[i]
		text := c.Assignment.Text()
		if !c.Delete && !isNew[text] && s.table.Get(c.Assignment.Subject) == nil {
			if room <= 0 {
				results[i].Outcome = assign.Full
				continue
			}
			isNew[text] = true
			room--
		}
		t := s.tagOf(text)
		batches[t] = append(batches[t], i)
	}
	wanted := make(map[*tag]streamID)
	var failure error
	// One batch of each tag at a time, so that those of a tag keep their order.
	for len(batches) > 0 {
		var calls []*call
		var of [][]int
		together := 0
		for t, all := range batches {
			if together >= maxTogether {
				break
			}
			n := min(len(all), maxPerCall)
			together += n
			calls = append(calls, s.changeCall(t, changes, all[:n]))
			of = append(of, all[:n])
			batches[t] = all[n:]
			if n == len(all) {
				delete(batches, t)
			}
		}
		s.sendChanges(ctx, calls)
		for i, c := range calls {
			id, err := decodeChanges(c, of[i], results)
			if err != nil {
				failure = wrap(err)
				// What follows was asked for on top of it.
				delete(batches, c.tag)
				continue
			}
			if id != (streamID{}) { // of a tag that never had a change
				wanted[c.tag] = id
			}
		}
		s.doorbell.ring(ctx, calls)
	}
	return wanted, failure
}

func (s *Store) changeCall(t *tag, changes []assign.Change, batch []int) *call {
	c := &call{tag: t, keys: []string{t.assigned, t.changes}, args: []any{s.clock(), s.keep(), ""}}
	for _, i := range batch {
		change := &changes[i]
		a := change.Assignment
		a.Terms = a.Terms.Canonical()
		body := ""
		by := a.By
		if !change.Delete {
			a.By, a.At, a.ETag = "", 0, ""
			body = string(assign.Encode(&a))
		}
		c.args = append(c.args, a.Text(), encodeSubject(&a.Subject), change.IfMatch, by, a.Reason, body)
	}
	return c
}

// sendChanges makes the calls. Those that fail are made once more: to make a change
// twice does no harm, and the node may have another master by then.
func (s *Store) sendChanges(ctx context.Context, calls []*call) {
	s.run(ctx, changeScript, calls)
	var failed []*call
	for _, c := range calls {
		if err := c.cmd.Err(); err != nil {
			s.redis.ReloadAfter(ctx, err)
			c.args[2] = "1"
			failed = append(failed, c)
		}
	}
	if len(failed) > 0 && ctx.Err() == nil {
		s.run(ctx, changeScript, failed)
	}
}

// decodeChanges reads the reply to changeCall.
func decodeChanges(c *call, batch []int, results []assign.Result) (streamID, error) {
	reply, err := c.cmd.Slice()
	if err != nil {
		return streamID{}, err
	}
	if len(reply) != 1+3*len(batch) {
		return streamID{}, fmt.Errorf("the reply of the script has %d elements, where %d are expected", len(reply), 1+3*len(batch))
	}
	last, _ := reply[0].(string)
	id, err := parseID(last)
	if err != nil {
		return streamID{}, err
	}
	for i, of := range batch {
		fields := reply[1+3*i:]
		code, _ := fields[0].(int64)
		if code < 1 || int(code) >= len(codes) {
			return streamID{}, fmt.Errorf("the reply of the script has the outcome %v", fields[0])
		}
		before, _ := fields[1].(string)
		after, _ := fields[2].(string)
		results[of] = assign.Result{Outcome: codes[code], Before: readable(before), After: readable(after)}
	}
	return id, nil
}

// readable returns a stored assignment, or nil if there is none or it cannot be read.
func readable(text string) *assign.Assignment {
	a, err := assign.Decode([]byte(text))
	if err != nil {
		return nil
	}
	return a
}

func encodeSubject(s *assign.Subject) string {
	text, _ := json.Marshal(s)
	return string(text)
}

// Reset implements assign.Store. Whether it was done is not known if it fails.
func (s *Store) Reset(ctx context.Context, keys []string, r assign.Record) ([]string, error) {
	if err := r.Subject.Check(); err != nil {
		return nil, err
	}
	var t *tag
	for _, k := range keys {
		of := s.byName[hashTagOf(k)]
		if of == nil || t != nil && of != t {
			return nil, fmt.Errorf("the key %q, where keys of one hash tag of limits are needed", k)
		}
		t = of
	}
	if t == nil || len(keys) > assign.ResetMost {
		return nil, fmt.Errorf("%d keys, where 1 to %d are allowed", len(keys), assign.ResetMost)
	}
	limits, _ := json.Marshal(r.Limits)
	states, _ := json.Marshal(keys)
	c := &call{tag: t, keys: append([]string{t.changes}, keys...),
		args: []any{s.keep(), encodeSubject(&r.Subject), r.By, r.Reason, string(limits), string(states)}}
	s.run(ctx, resetScript, []*call{c})
	text, err := c.cmd.Text()
	if err != nil {
		s.redis.ReloadAfter(ctx, err)
		return nil, wrap(err)
	}
	id, err := parseID(text)
	if err != nil {
		return nil, wrap(err)
	}
	s.doorbell.ring(ctx, []*call{c})
	return s.await(ctx, map[*tag]streamID{t: id})
}

// hashTagOf returns what stands between the first braces of a key.
func hashTagOf(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	name, _, _ := strings.Cut(rest, "}")
	return name
}
