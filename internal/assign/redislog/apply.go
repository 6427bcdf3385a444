package redislog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

const (
	// maxPerCall bounds the changes of one call, so that it does not occupy a server for
	// long: some milliseconds.
	maxPerCall = 200
	// maxTries is how often a change is tried of which others change the subject.
	maxTries = 10
)

var (
	errNotLoaded = errors.New("redis: the assignments are not loaded yet")
	errBusy      = fmt.Errorf("%w: others change the same subject all the time", assign.ErrNothingChanged)
	errNotSent   = fmt.Errorf("not sent, so %w: Redis did not answer before", assign.ErrNothingChanged)
)

// Apply implements assign.Store.
func (s *Store) Apply(ctx context.Context, changes []assign.Change) ([]assign.Result, error) {
	results := make([]assign.Result, len(changes))
	for i := range changes {
		if err := changes[i].Check(); err != nil {
			return results, fmt.Errorf("change %d: %w", i, err)
		}
	}
	if !s.Loaded() {
		return results, errNotLoaded
	}
	// The table may be a second old: by it a change might change nothing that does, or
	// find another version than there is.
	if err := s.refreshNow(ctx); err != nil {
		notSent := s.failure(err, false)
		if notSent.Outcome != assign.Failed {
			notSent = assign.Result{Outcome: assign.Failed, Err: errNotSent, Passes: true}
		}
		for i := range results {
			results[i] = notSent
		}
		return results, wrap(err)
	}
	for from := 0; from < len(changes); {
		to := from + together(changes[from:])
		if err := s.apply(ctx, changes[from:to], results[from:to]); err != nil {
			for i := range results[to:] {
				results[to+i] = assign.Result{Outcome: assign.Failed, Err: errNotSent, Passes: true}
			}
			return results, wrap(err)
		}
		from = to
	}
	return results, nil
}

// together returns how many of the first changes go into one call: each is of another
// subject, since a change builds on what the one before it made.
func together(changes []assign.Change) int {
	seen := make(map[string]bool)
	for i := range changes {
		text := changes[i].Text()
		if i == maxPerCall || seen[text] {
			return i
		}
		seen[text] = true
	}
	return len(changes)
}

// apply makes changes of different subjects. One that finds another version in Redis than
// the table has is tried again on top of that.
func (s *Store) apply(ctx context.Context, changes []assign.Change, results []assign.Result) error {
	var made []entry
	defer func() { s.catchUp(ctx, made) }()
	pending, there := make([]int, len(changes)), make(map[int]string)
	for i := range pending {
		pending[i] = i
	}
	if err := s.readLeftOut(ctx, changes, there); err != nil {
		for i := range results {
			results[i] = assign.Result{Outcome: assign.Failed, Err: errNotSent, Passes: true}
		}
		return err
	}
	for range maxTries {
		var args []any
		if args, pending = s.prepare(changes, results, pending, there); len(pending) == 0 {
			return nil
		}
		reply, isResent, err := s.send(ctx, args)
		if errors.Is(err, errLost) && s.refreshNow(ctx) == nil {
			continue // it was put back
		}
		if err != nil {
			for _, i := range pending {
				results[i] = s.failure(err, isResent)
			}
			return err
		}
		var again []int
		for k, i := range pending {
			isMade, text := reply[2*k] == int64(1), fmt.Sprint(reply[2*k+1])
			if etag, body, _ := strings.Cut(text, " "); isResent && !isMade && body == args[4*k+2] {
				isMade, text = true, etag // by the call whose reply was lost
			}
			if !isMade {
				there[i], again = text, append(again, i)
				continue
			}
			e := entry{record: changes[i].Record(results[i].Before, results[i].After)}
			e.id, _ = parseID(text) // zero for what was removed by a call whose reply was lost
			if results[i].After != nil {
				results[i].After.Stamp(text, e.id.micros())
			}
			made = append(made, e)
		}
		pending = again
	}
	for _, i := range pending {
		results[i] = assign.Result{Outcome: assign.Failed, Err: errBusy, Passes: true}
	}
	return nil
}

// readLeftOut puts into there what Redis has of subjects for which the table may have no
// room.
func (s *Store) readLeftOut(ctx context.Context, changes []assign.Change, there map[int]string) error {
	if !s.isFull() {
		return nil
	}
	var texts []string
	for i := range changes {
		texts = append(texts, changes[i].Text())
	}
	ctx, cancel := context.WithTimeout(ctx, s.redis.Timeout())
	defer cancel()
	values, err := s.redis.HMGet(ctx, s.assigned, texts...).Result()
	for i, value := range values {
		if text, isText := value.(string); isText && s.table.Get(changes[i].Subject) == nil {
			there[i] = text
		}
	}
	return err
}

// prepare computes the results of changes, and returns the arguments for those that write
// something, and which these are. there has values that were in Redis in place of what the
// table has.
func (s *Store) prepare(changes []assign.Change, results []assign.Result, pending []int, there map[int]string) (args []any, sent []int) {
	room := s.o.MaxAssignments - s.table.Len()
	for _, i := range pending {
		c := &changes[i]
		text, etag := c.Text(), ""
		held := s.table.Get(c.Subject)
		if value, isThere := there[i]; isThere {
			held, etag, _ = decodeValue(value) // what cannot be read counts as absent
		} else if held != nil {
			etag = held.ETag
		}
		r := &results[i]
		switch r.Before, r.After, r.Outcome = c.Apply(held, s.now()); r.Outcome {
		case assign.Created:
			if room--; room < 0 {
				r.After, r.Outcome = nil, assign.Full
				continue
			}
		case assign.Replaced, assign.Deleted:
		default:
			continue
		}
		body := ""
		if r.After != nil {
			body = string(assign.Encode(r.After))
		}
		record := c.Record(r.Before, r.After)
		args, sent = append(args, text, etag, body, assign.EncodeRecord(&record)), append(sent, i)
	}
	return args, sent
}

// send runs change.lua. If the reply is lost it sends the same again: what was made is
// then found as it was wanted.
func (s *Store) send(ctx context.Context, args []any) (reply []any, isResent bool, _ error) {
	known := cmp.Or(s.Change(), changeID{}.String())
	cmd := s.appendRecords(ctx, changeScript, known, args...)
	if err := cmd.Err(); err != nil && ctx.Err() == nil {
		isResent = !redisconn.IsRefusal(err)
		cmd = s.appendRecords(ctx, changeScript, known, args...)
	}
	if text, _ := cmd.Text(); text == "LOST" {
		return nil, isResent, errLost
	}
	reply, err := cmd.Slice()
	if err == nil && len(reply) != len(args)/2 {
		err = fmt.Errorf("the reply of the script has %d elements, where %d are expected", len(reply), len(args)/2)
	}
	return reply, isResent, err
}

// failure returns the result of a change that failed.
func (s *Store) failure(err error, isResent bool) assign.Result {
	passes := errors.Is(err, errLost) || redisconn.IsPassing(err)
	if isResent || !passes && !redisconn.IsRefusal(err) {
		return assign.Result{} // its outcome is unknown
	}
	// The position in the script means nothing to people.
	text, _, _ := strings.Cut(s.redis.Explain(redisconn.AnyNode, err).Error(), " script: ")
	return assign.Result{Outcome: assign.Failed, Err: fmt.Errorf("refused by Redis, %w: %s", assign.ErrNothingChanged, text), Passes: passes}
}

// catchUp returns once the table has changes that were made.
func (s *Store) catchUp(ctx context.Context, made []entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	isNew := func(e entry) bool { return e.id == changeID{} || e.id.compare(s.at) > 0 }
	if !slices.ContainsFunc(made, isNew) || s.refresh(ctx) == nil {
		return
	}
	for i := range made { // Redis fell silent since
		s.put(&made[i])
	}
}

// refreshNow is refresh for those who do not hold s.mu.
func (s *Store) refreshNow(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refresh(ctx)
}
