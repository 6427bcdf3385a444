package redislog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

const (
	// maxPerCall and maxBytesPerCall bound the changes of one call, so that it does not
	// occupy a server for long: some milliseconds. A call has at least one change.
	maxPerCall      = 200
	maxBytesPerCall = 256 << 10
	// maxTogether bounds roughly how many changes are on their way at once.
	maxTogether = 1000
	// awaitRestore is how long a change waits until assignments that Redis has lost are
	// put back.
	awaitRestore = 2 * time.Second
)

var errNotLoaded = errors.New("redis: the assignments are not loaded yet")

// errChangeLost is why nobody knows whether a change that was made is in force.
var errChangeLost = errors.New("redis has lost the change in the moment after it was made; ask for it again")

// errBusy is why a change was not made.
var errBusy = errors.New("others change the same subjects all the time")

// lostAs are the outcomes that become unknown when a change is lost.
var lostAs = []assign.Outcome{assign.Created, assign.Replaced, assign.Deleted, assign.Unchanged}

// codes maps the outcomes in the replies of change.lua.
var codes = [...]assign.Outcome{1: assign.Created, 2: assign.Replaced, 3: assign.Unchanged, 4: assign.Deleted, 5: assign.Conflict,
	6: assign.TooManyNumbers, 7: assign.NeedsParts}

// Apply implements assign.Store. It fails, with nothing changed, if a change is invalid,
// or if the store is not loaded. It needs Run to run.
func (s *Store) Apply(ctx context.Context, changes []assign.Change, maxWait ...assign.MaxWait) (assign.Applied, error) {
	applied := assign.Applied{Results: make([]assign.Result, len(changes))}
	for i := range changes {
		if err := changes[i].Check(); err != nil {
			return applied, fmt.Errorf("change %d: %w", i, err)
		}
	}
	if !s.Loaded() {
		return applied, errNotLoaded
	}
	if err := s.awaitCaughtUp(ctx); err != nil {
		for i := range applied.Results {
			applied.Results[i] = assign.Result{Outcome: assign.Failed, Passes: true, Err: fmt.Errorf("%w: %w", assign.ErrNothingChanged, err)}
		}
		return applied, wrap(err)
	}
	old := s.old(ctx)
	wanted, err := s.change(ctx, changes, applied.Results, old)
	for i := range changes {
		if changes[i].RestOfDomain {
			err = errors.Join(err, s.changeRest(ctx, changes[i:i+1], applied.Results[i:i+1], wanted))
		}
	}
	if slices.ContainsFunc(applied.Results, func(r assign.Result) bool { return r.Outcome == assign.NeedsParts }) {
		applied.Old = old.NoParts
		if len(old.NoParts) == 0 {
			applied.Old = old.NoCalendar
		}
	}
	reached, lost := s.await(ctx, wanted, maxWait)
	applied.Reached = reached
	if len(lost) == 0 {
		return applied, err
	}
	for i := range changes {
		isLost := lost[s.tagOf(changes[i].Assignment.Text())] || changes[i].RestOfDomain
		if r := &applied.Results[i]; isLost && slices.Contains(lostAs, r.Outcome) {
			*r = assign.Result{}
		}
	}
	return applied, errors.Join(err, wrap(errChangeLost))
}

// old returns the daemons that cannot read all assignments. If they are not known, it
// returns the reason instead: a daemon that cannot read a change would lift a block.
func (s *Store) old(ctx context.Context) Old {
	if s.o.Old == nil {
		return Old{}
	}
	old, err := s.o.Old(ctx)
	if err != nil {
		unknown := []string{fmt.Sprintf("daemons that are not known (%v)", err)}
		return Old{NoParts: unknown, NoCalendar: unknown}
	}
	return old
}

// change makes changes, only those that old daemons can read, and returns the IDs that
// daemons must have seen.
func (s *Store) change(ctx context.Context, changes []assign.Change, results []assign.Result, old Old) (written, error) {
	batches := make(map[*tag][]int) // indices of changes
	room := s.o.MaxAssignments - s.table.Len()
	isNew := make(map[string]bool)
	for i := range changes {
		c := &changes[i]
		if c.RestOfDomain {
			continue // see changeRest
		}
		text := c.Assignment.Text()
		if c.Sets() && !isNew[text] && s.table.Get(c.Assignment.Subject) == nil {
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
	wanted := make(written)
	var failure error
	// One batch per tag at a time, so that the changes of a tag keep their order.
	for len(batches) > 0 {
		var calls []*call
		var of [][]int
		together := 0
		for t, all := range batches {
			if together >= maxTogether {
				break
			}
			c, n := s.changeCall(t, changes, all, old)
			together += n
			calls = append(calls, c)
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
				// The changes after it were requested on top of it, and are not sent.
				unsent := assign.Result{Outcome: assign.Failed, Passes: true,
					Err: fmt.Errorf("not sent, so %w: Redis did not answer for changes before it: %w", assign.ErrNothingChanged, err)}
				if c.refused(err) {
					unsent.Err, unsent.Passes = s.refusal(err), passes(err)
					setAll(results, of[i], unsent)
				}
				setAll(results, batches[c.tag], unsent)
				delete(batches, c.tag)
				continue
			}
			if id != (streamID{}) { // zero for a tag that never had a change
				wanted[c.tag] = append(wanted[c.tag], id)
			}
		}
		s.doorbell.ring(ctx, calls)
	}
	return wanted, failure
}

// changeRest records one change of the rest of a domain in each tag of which something
// was put back, since only there someone may bring back more.
func (s *Store) changeRest(ctx context.Context, one []assign.Change, result []assign.Result, wanted written) error {
	var calls []*call
	for _, t := range s.tags {
		c, _ := s.changeCall(t, one, []int{0}, Old{})
		calls = append(calls, c)
	}
	s.sendChanges(ctx, calls)
	s.doorbell.ring(ctx, calls)
	var failure error
	for _, c := range calls {
		id, err := decodeChanges(c, []int{0}, result)
		if err != nil {
			failure = wrap(err)
			continue
		}
		if id != (streamID{}) {
			wanted[c.tag] = append(wanted[c.tag], id)
		}
	}
	if failure != nil {
		result[0] = assign.Result{} // some tags may have it
	}
	return failure
}

func setAll(results []assign.Result, which []int, to assign.Result) {
	for _, i := range which {
		results[i] = to
	}
}

// Positions of the arguments of change.lua that sendChanges and changeCall set.
const argResent, argForms, argKnown, argNewest = 2, 3, 5, 6

// changeCall returns the call that makes the first changes of a batch, and their number.
func (s *Store) changeCall(t *tag, changes []assign.Change, batch []int, old Old) (c *call, n int) {
	c = &call{tag: t, keys: []string{t.assigned, t.changes}, args: []any{s.clock(), s.keep(), "", "", assign.MaxNumbers, "", (streamID{}).String()}}
	if known := t.known.Load(); known != nil {
		c.args[argKnown], c.args[argNewest] = known.String(), known.String()
	}
	switch {
	case len(old.NoParts) > 0:
		c.args[argForms] = "1"
	case len(old.NoCalendar) > 0:
		c.args[argForms] = "2"
	}
	bytes := 0
	for _, i := range batch {
		change := &changes[i]
		a := &change.Assignment
		text, subject, asked := a.Text(), encodeSubject(&a.Subject), encodeChange(change)
		bytes += len(text) + len(subject) + len(asked)
		if n == maxPerCall || n > 0 && bytes > maxBytesPerCall {
			break
		}
		n++
		c.args = append(c.args, text, subject, change.IfMatch, a.By, a.Reason, asked)
	}
	return c, n
}

// encodeChange returns a change in the form that change.lua reads.
func encodeChange(c *assign.Change) string {
	asked := struct {
		Rest    bool        `json:"rest"`
		Numbers bool        `json:"numbers"`
		Remove  []string    `json:"remove"`
		Set     [][3]string `json:"set"`
		Named   string      `json:"named"`
	}{Rest: c.Remove.Rest, Numbers: c.Remove.Numbers, Remove: []string{}, Set: [][3]string{}}
	for _, p := range []struct {
		name string
		goes bool
	}{
		{name: assign.PartPlan, goes: c.Remove.Plan},
		{name: assign.PartCalendar, goes: c.Remove.Calendar},
		{name: assign.PartUnlimited, goes: c.Remove.Unlimited},
		{name: assign.PartBlock, goes: c.Remove.Block},
	} {
		if p.goes {
			asked.Remove = append(asked.Remove, p.name)
		}
	}
	for _, limit := range c.Remove.Limits {
		asked.Remove = append(asked.Remove, assign.PartLimit+limit)
	}
	for _, p := range c.Assignment.Parts() {
		asked.Set = append(asked.Set, [3]string{p.Name, p.Text, p.Until})
	}
	named := namedParts{Rest: asked.Rest, Numbers: asked.Numbers, Names: slices.Clone(asked.Remove)}
	for _, set := range asked.Set {
		named.Names = append(named.Names, set[0])
	}
	asked.Named = named.encode()
	text, _ := json.Marshal(asked) // cannot fail
	return string(text)
}

// sendChanges makes the calls. Failed ones are repeated once: making a change twice does
// no harm, and the node may have another master by then.
func (s *Store) sendChanges(ctx context.Context, calls []*call) {
	s.run(ctx, changeScript, calls)
	var failed []*call
	for _, c := range calls {
		if err := c.cmd.Err(); err != nil {
			s.redis.ReloadAfter(ctx, err)
			if c.mayHaveRun {
				c.args[argResent] = "1"
			}
			failed = append(failed, c)
		}
	}
	if len(failed) > 0 && ctx.Err() == nil {
		s.run(ctx, changeScript, failed)
	}
	for deadline := time.Now().Add(awaitRestore); ; {
		var again []*call
		mustPause := false
		for _, c := range calls {
			newest := newerThanAsked(c)
			switch {
			case newest != "":
				c.args[argNewest] = newest
			case isLost(c):
				mustPause = true
				s.doorbell.mark(c.tag)
			default:
				continue
			}
			again = append(again, c)
		}
		if len(again) == 0 || time.Now().After(deadline) || ctx.Err() != nil || mustPause && !pause(ctx, 10*time.Millisecond) {
			return
		}
		s.run(ctx, changeScript, again)
	}
}

// newerThanAsked returns the newest change of the tag, if a call changed nothing because
// it was sent for another one; otherwise "".
func newerThanAsked(c *call) string {
	reply, err := c.cmd.Slice()
	if err != nil || len(reply) != 2 || reply[0] != "NEWER" {
		return ""
	}
	newest, _ := reply[1].(string)
	return newest
}

// isLost reports whether a call was refused because Redis has lost the assignments.
func isLost(c *call) bool {
	reply, err := c.cmd.Slice()
	return err == nil && len(reply) == 1 && reply[0] == "LOST"
}

// decodeChanges reads the reply to changeCall.
func decodeChanges(c *call, batch []int, results []assign.Result) (streamID, error) {
	reply, err := c.cmd.Slice()
	if err != nil {
		return streamID{}, err
	}
	if isLost(c) {
		return streamID{}, errLost
	}
	if newerThanAsked(c) != "" {
		return streamID{}, errBusy
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

// Reset implements assign.Store.
func (s *Store) Reset(ctx context.Context, r assign.Reset, maxWait ...assign.MaxWait) (done assign.Forgotten, _ error) {
	if err := r.Record.Subject.Check(); err != nil {
		return done, err
	}
	var t *tag
	for _, k := range r.Keys {
		of := s.byName[hashTagOf(k)]
		if of == nil || t != nil && of != t {
			return done, fmt.Errorf("the key %q, where keys of one hash tag of limits are needed", k)
		}
		t = of
	}
	if t == nil || len(r.Keys) > assign.MaxReset {
		return done, fmt.Errorf("%d keys, where 1 to %d are allowed", len(r.Keys), assign.MaxReset)
	}
	limits, _ := json.Marshal(r.Record.Limits)
	states, _ := json.Marshal(r.Keys)
	onlyCounted := ""
	if r.OnlyCounted {
		onlyCounted = "1"
	}
	c := &call{tag: t, keys: append([]string{t.changes, t.assigned}, r.Keys...),
		args: []any{s.keep(), encodeSubject(&r.Record.Subject), r.Record.By, r.Record.Reason, string(limits), string(states), onlyCounted, bucket.MaxReservation.Milliseconds()}}
	for _, k := range r.Keys {
		c.keys = append(c.keys, string(bucket.AppendReset(nil, []byte(k))))
	}
	s.run(ctx, resetScript, []*call{c})
	counted, id, err := decodeReset(c)
	if err != nil {
		s.redis.ReloadAfter(ctx, err)
		if c.refused(err) {
			return done, s.refusal(err)
		}
		return done, wrap(err)
	}
	done.States = counted
	if id == (streamID{}) {
		return done, nil
	}
	s.doorbell.ring(ctx, []*call{c})
	var lost map[*tag]bool
	if done.Reached, lost = s.await(ctx, written{t: {id}}, maxWait); lost[t] {
		return done, wrap(errChangeLost)
	}
	return done, nil
}

// decodeReset reads the reply of reset.lua. The ID is zero if nothing was done.
func decodeReset(c *call) (states int, id streamID, _ error) {
	reply, err := c.cmd.Slice()
	if err != nil {
		return 0, id, err
	}
	if len(reply) != 2 {
		return 0, id, fmt.Errorf("the reply of the script has %d elements, where 2 are expected", len(reply))
	}
	counted, isNumber := reply[0].(int64)
	text, isText := reply[1].(string)
	if !isNumber || !isText {
		return 0, id, fmt.Errorf("the reply of the script is %v", reply)
	}
	if text != "" {
		id, err = parseID(text)
	}
	return int(counted), id, err
}

// hashTagOf returns what is between the first braces of a key.
func hashTagOf(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	name, _, _ := strings.Cut(rest, "}")
	return name
}
