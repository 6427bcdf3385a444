package redislog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// Redis may forget what people decided: it was restarted without a file, or with an old
// one, it evicts, someone flushed it. A daemon that has the assignments keeps them in
// force and puts them back.
//
// A tag that ever had an assignment has an epoch, a field beside its assignments, so that
// an eviction takes both. It distinguishes a tag whose last assignment was removed from
// one that was lost. Each change continues from the one before, so missing changes show
// as well. What is put back is marked as of the last change that the daemon has seen;
// where a record says something newer about a subject, that stays. So of several daemons
// the one that has seen the newest change wins, whichever comes first. Putting back is
// not a change itself: if the result is lost in turn, it is put back as of the same
// change as before; otherwise it would win over a change that is newer than all of it.

// epochField is the name of the epoch in the hash of a tag. No subject has this text.
const epochField = "~epoch"

// beginningOf returns the part of an epoch that stays the same until the tag is lost.
// When something of the tag is put back, " restored " and the ID of the record follow it.
func beginningOf(epoch string) string {
	first, _, _ := strings.Cut(epoch, " ")
	return first
}

// restorerField is beside the assignments of a tag while some of them are still to be put
// back.
const restorerField = "~restorer"

const (
	// restoreLives is how long a daemon that puts back may be silent.
	restoreLives = 10 * time.Second
	// restoreRetry is the pause before tags that could not be put back are looked at
	// again.
	restoreRetry = 100 * time.Millisecond
	// maxPutBack bounds the assignments of one call, so that it does not occupy a server
	// for long.
	maxPutBack = 200
)

// errLost is why a change cannot be made at the moment.
var errLost = errors.New("redis has lost the assignments, and a daemon is putting them back")

// isBehind reports whether Redis lacks what this daemon has of a tag. changes are those
// from its last one on, and epoch is the one in Redis.
func (s *Store) isBehind(ctx context.Context, t *tag, changes []redis.XMessage, epoch string) (bool, error) {
	if t.epoch == "" || t.at == (streamID{}) && epoch != "" {
		return false, nil
	}
	if epoch == "" {
		return true, nil
	}
	if len(changes) > 0 {
		if changes[0].ID == t.at.String() {
			return false, nil
		}
		e, err := decodeEntry(t, changes[0])
		if err == nil && e.record.Kind == assign.Restored && e.previous == e.through {
			return e.through.compare(t.has) < 0, nil // it continues from nothing else
		}
		previous, _ := changes[0].Values["p"].(string)
		id, err := parseID(previous)
		return err == nil && id.compare(t.at) < 0, nil
	}
	// The stream ends earlier, or was evicted: then the assignments are complete, unless
	// someone has started them again.
	newest, err := s.newestOf(ctx, t)
	if newest == (streamID{}) {
		return err == nil && t.epoch != movedEpoch && beginningOf(epoch) != beginningOf(t.epoch), err
	}
	return err == nil && newest.compare(t.at) < 0, err
}

// lossOf is what is known about a tag that is being put back.
type lossOf struct {
	tag *tag
	// epoch and newest are those in Redis.
	epoch  string
	newest streamID
	// isEmpty says that it has nothing else.
	isEmpty bool
	// touched are the subjects about which Redis knows something newer, by their texts.
	touched map[string]*touchedSubject
	// noCalendar says that some daemon cannot read a calendar.
	noCalendar bool
	// domains are those of whose rest some parts are to be removed, by name.
	domains map[string]*namedParts
	// name is the name of the put-back, and isBegun says that some of it is written.
	name    string
	isBegun bool
	page    []any // arguments of the next call
	n       int   // assignments that were put back
	// id is the ID of the record, once it is done; failed says that it is not.
	id     streamID
	failed bool
}

// putBack puts back from the table the assignments of tags that Redis has lost. Those
// that could not be put back are soon looked at again.
func (s *Store) putBack(ctx context.Context, tags []*tag, n *news) error {
	s.tellLost(tags)
	tags = slices.DeleteFunc(slices.Clone(tags), func(t *tag) bool { return time.Now().Before(t.putBackAfter) })
	if len(tags) == 0 {
		return nil
	}
	mine, err := s.claim(ctx, "restorer", restoreLives)
	if err != nil || !mine {
		return err // another daemon is doing it
	}
	losses := make(map[*tag]*lossOf, len(tags))
	for _, t := range tags {
		l, err := s.lossOf(ctx, t)
		if err != nil {
			return errors.Join(err, s.unclaim(ctx, "restorer"))
		}
		if l != nil {
			losses[t] = l
		}
	}
	err = s.putBackAll(ctx, losses)
	asOf := streamID{}
	sum := 0
	for t, l := range losses {
		if l.failed || l.id == (streamID{}) {
			continue
		}
		sum += l.n
		if t.has.compare(asOf) > 0 {
			asOf = t.has
		}
		s.watchers.Tell(assign.Record{ID: recordID(t, l.id), Moment: l.id.micros(), Kind: assign.Restored, By: s.o.Name, Restored: l.n})
		t.putBackAfter = time.Time{}
		if l.isEmpty {
			t.at = l.id
			t.setEpoch(l.id.String())
			n.changed = append(n.changed, t)
		} else {
			t.isLoaded = false // Redis knows something newer
		}
	}
	if sum > 0 {
		s.restored.Add(uint64(sum))
		s.o.Log.Error("redis: assignments that Redis had lost were put back", "assignments", sum,
			"as_of", time.UnixMicro(asOf.micros()).UTC().Format(time.RFC3339), "from", s.source())
	}
	return errors.Join(err, s.unclaim(ctx, "restorer"))
}

// tellLost logs that Redis has lost assignments, once for each loss.
func (s *Store) tellLost(tags []*tag) {
	isNew := false
	for _, t := range tags {
		isNew = isNew || !t.isLost
		t.isLost = true
	}
	if !isNew {
		return
	}
	s.losses.Add(1)
	if n, due := s.lossLines.Due(time.Now(), logEvery); due {
		s.o.Log.Error("redis: Redis has lost assignments; those that this daemon has stay in force, and are put back", "hash_tags", len(tags), "from", s.source(), "unlogged_before", n)
	}
}

// source says where this daemon got its assignments from, for people.
func (s *Store) source() string {
	if s.snapshotAt.IsZero() {
		return "memory"
	}
	return "snapshot of " + s.snapshotAt.UTC().Format(time.RFC3339)
}

// lossOf reads what Redis has of a tag of which it has lost something. It returns nil if
// another daemon has meanwhile put that back, or if there is more to follow.
func (s *Store) lossOf(ctx context.Context, t *tag) (*lossOf, error) {
	l := &lossOf{tag: t, touched: make(map[string]*touchedSubject), domains: make(map[string]*namedParts), name: fmt.Sprintf("%016x", rand.Uint64())}
	var changes *redis.XMessageSliceCmd
	var epoch *redis.StringCmd
	var size *redis.IntCmd
	err := s.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		changes = pipe.XRangeN(ctx, t.changes, t.at.String(), "+", 1)
		epoch, size = pipe.HGet(ctx, t.assigned, epochField), pipe.HLen(ctx, t.assigned)
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	l.epoch = epoch.Val()
	if isBehind, err := s.isBehind(ctx, t, changes.Val(), l.epoch); err != nil || !isBehind {
		return nil, err
	}
	if l.newest, err = s.newestOf(ctx, t); err != nil {
		return nil, err
	}
	l.isEmpty = size.Val() == 0 && l.newest == streamID{}
	if err := s.touchOlder(ctx, l); err != nil {
		return nil, err
	}
	for at := t.has; at.compare(l.newest) < 0; {
		changes, err := s.changesAfter(ctx, t, at)
		if err != nil || len(changes) == 0 {
			return l, err
		}
		for _, m := range changes {
			e, err := decodeEntry(t, m)
			if e.id.compare(at) <= 0 {
				return nil, err
			}
			switch {
			case err != nil:
			case l.epoch == "" && e.previous == t.at && e.record.Kind != assign.Restored:
				return nil, nil // the assignments were lost after this change, which is followed first
			case l.epoch != "" && e.record.Kind == assign.Restored && e.through.compare(t.has) >= 0:
				t.isLoaded = false // it was put back by a daemon that had everything that this one has
				return nil, nil
			}
			at = e.id
			if err == nil && e.isChange() {
				l.touch(&e)
			}
		}
	}
	return l, nil
}

// touchOlder notes the changes since the loss whose IDs are smaller than what this daemon
// has: the clock of the new master is behind that of the old one, and their makers did
// not know what was lost. They are the ones that it has not followed even though it
// followed all.
func (s *Store) touchOlder(ctx context.Context, l *lossOf) error {
	t := l.tag
	if l.epoch == "" || len(t.recent) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.redis.Timeout())
	defer cancel()
	records, err := s.redis.XRangeN(ctx, t.changes, t.recent[0].String(), t.has.String(), 4*maxRecent).Result()
	for _, m := range records {
		if e, err := decodeEntry(t, m); err == nil && len(e.record.Entries) > 0 && e.record.Kind != assign.WasReset && !slices.Contains(t.recent, e.id) {
			l.touch(&e)
		}
	}
	return err
}

// putBackAll writes the assignments of the tags, and removes what is in Redis but had
// been removed before the loss.
func (s *Store) putBackAll(ctx context.Context, losses map[*tag]*lossOf) error {
	var errs []error
	now := s.now()
	for a := range s.table.All() {
		text := a.Text()
		l := losses[s.tagOf(text)]
		if l == nil || l.failed {
			continue
		}
		if named := l.domains[a.Domain]; named != nil {
			l.touchSubject(a.Subject, named)
		}
		if l.touched[text] != nil {
			continue
		}
		// What has ended replaces an older version without that end, and the sweep
		// removes it.
		if !a.Ended(now) {
			l.n++
		}
		l.page = append(l.page, text, string(assign.Encode(a)))
		if len(l.page) >= 2*maxPutBack {
			errs = append(errs, s.putBackPage(ctx, l, ""))
		}
	}
	for _, t := range slices.SortedFunc(maps.Keys(losses), func(a, b *tag) int { return a.index - b.index }) {
		l := losses[t]
		if !l.isEmpty && t.leftOut.all == 0 {
			errs = append(errs, s.removeGone(ctx, l))
		}
		errs = append(errs, s.putBackParts(ctx, l))
		errs = append(errs, s.putBackPage(ctx, l, t.has.String()))
	}
	return errors.Join(errs...)
}

// removeGone removes what Redis has of a tag but had been removed before the loss.
func (s *Store) removeGone(ctx context.Context, l *lossOf) error {
	for cursor := uint64(0); !l.failed; {
		page, next, err := s.page(ctx, l.tag, cursor)
		if err != nil {
			l.failed = true
			return err
		}
		for i := 0; i+1 < len(page); i += 2 {
			a, err := s.decodeField(l.tag, page[i], page[i+1])
			if err != nil || l.touched[page[i]] != nil || s.table.Get(a.Subject) != nil {
				continue
			}
			l.page = append(l.page, page[i], "")
		}
		if len(l.page) >= 2*maxPutBack {
			err = s.putBackPage(ctx, l, "")
		}
		if cursor = next; cursor == 0 || err != nil {
			return err
		}
	}
	return nil
}

// putBackPage sends what has been collected of a tag. through is empty while there is
// more to come.
func (s *Store) putBackPage(ctx context.Context, l *lossOf, through string) error {
	if l.failed {
		return nil
	}
	isFirst := ""
	if !l.isBegun {
		isFirst = "1"
	}
	c := &call{tag: l.tag, keys: []string{l.tag.assigned, l.tag.changes},
		args: append([]any{l.newest.String(), l.epoch, through, s.o.Name, strconv.Itoa(l.n), s.keep(), l.name, isFirst}, l.page...)}
	l.page, l.isBegun = l.page[:0], true
	s.run(ctx, restoreScript, []*call{c})
	reply, err := c.cmd.Text()
	if err == nil {
		err = s.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) { pipe.PExpire(ctx, s.key("restorer"), restoreLives) })
	}
	switch {
	case err != nil:
		l.failed = true
		return wrap(fmt.Errorf("assignments that Redis has lost could not be put back: %w", err))
	case reply == "-": // someone has changed something
		l.failed = true
	case reply != "":
		l.id, err = parseID(reply)
	}
	return err
}

// Losses returns how often Redis had lost assignments, and how many this daemon has put
// back.
func (s *Store) Losses() (losses, restored uint64) { return s.losses.Load(), s.restored.Load() }
