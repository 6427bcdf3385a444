package redislog

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

const (
	// lookEvery is how often all tags are looked at, whether or not the doorbell rings.
	lookEvery = 2 * time.Second
	// pageOfChanges is how many changes of a tag are read at once.
	pageOfChanges = 250
	// maxRecent is the minimum number of records of a tag whose IDs are remembered, once
	// there are more.
	maxRecent = 128
	// sweepEvery is how often what has ended is removed.
	sweepEvery = time.Minute
)

// Run implements assign.Store. It ends within a second or so after ctx.
func (s *Store) Run(ctx context.Context) {
	var background sync.WaitGroup
	defer background.Wait()
	s.loadSnapshot()
	s.tellRights(ctx)
	for {
		err := s.move(ctx) // puts the assignments where this daemon looks for them
		if err == nil {
			break
		}
		s.logFailure(ctx, err)
		_, asked := s.doorbell.take()
		s.answer(asked, err)
		if !pause(ctx, retryEvery) {
			return
		}
	}
	background.Go(func() { s.doorbell.listen(ctx) })
	background.Go(func() { s.answerCalls(ctx) })
	background.Go(func() { s.sweepForever(ctx) })
	background.Go(func() { s.watchKeeping(ctx) })
	if s.o.CachePath != "" {
		background.Go(func() { s.keepSnapshots(ctx) })
	}
	renewed := time.Now()
	var asked []chan<- error
	for look := s.tags; ctx.Err() == nil; {
		again, lacking, err := s.look(ctx, look)
		switch {
		case err == nil && len(lacking) > 0:
			s.answer(asked, errLost)
			asked = nil
		case err != nil || len(again) == 0:
			s.answer(asked, err)
			asked = nil
		}
		s.tellLeftOut()
		s.mend(time.Now())
		if time.Since(renewed) > ackEvery {
			renewed = time.Now()
			err = errors.Join(err, s.renew(ctx))
		}
		s.doorbell.mark(again...)
		if err != nil {
			s.logFailure(ctx, err)
			s.doorbell.mark(look...)
			pause(ctx, retryEvery)
		} else {
			s.failure.Store(nil)
			s.doze(ctx)
		}
		var more []chan<- error
		look, more = s.doorbell.take()
		asked = append(asked, more...)
	}
	// The listener is waiting in Redis for a ring.
	s.doorbell.ring(context.WithoutCancel(ctx), nil)
}

// doze waits until there is something to look at.
func (s *Store) doze(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.doorbell.wake:
	case <-time.After(lookEvery):
		s.doorbell.mark(s.tags...)
	}
}

// answer tells those who asked to catch up the result. A daemon without the rights to
// follow changes is named as pending by all changes, so it has missed none that its maker
// takes for done.
func (s *Store) answer(asked []chan<- error, err error) {
	if isForbidden(err) {
		err = nil
	}
	for _, a := range asked {
		a <- err
	}
}

// pause waits, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// news is what a look at tags found.
type news struct {
	changed []*tag // those that have advanced
	keys    []string
	// reloaded maps a tag to the texts of the subjects that Redis has.
	reloaded map[*tag]map[string]struct{}
}

// look brings the table up to date with what Redis has for these tags, and acknowledges
// it as in force, even where that failed before. It returns the tags that have more
// changes, and those of which Redis still lacks something. A tag that could not be looked
// at does not hold back the others.
func (s *Store) look(ctx context.Context, tags []*tag) (again, lacking []*tag, _ error) {
	var n news
	var known []*tag
	var errs []error
	for _, t := range tags {
		if t.isLoaded {
			known = append(known, t)
		}
	}
	again, lost, behind, err := s.follow(ctx, known, &n)
	errs = append(errs, err)
	if len(behind) > 0 {
		errs = append(errs, s.putBack(ctx, behind, &n))
		time.AfterFunc(restoreRetry, func() { s.doorbell.mark(behind...) })
	}
	for _, t := range lost {
		t.isLoaded = false
	}
	if len(lost) > 0 {
		s.logLost(len(lost))
	}
	errs = append(errs, s.load(ctx, tags, &n))
	s.removeLost(&n)
	for _, t := range tags {
		t.noteKnown()
	}
	if len(n.changed) > 0 || s.positions.Load() == nil {
		s.notePositions()
	}
	if len(n.changed) > 0 && s.o.Hooks.Quiesce != nil {
		s.o.Hooks.Quiesce()
	}
	if len(n.keys) > 0 && s.o.Hooks.Forget != nil {
		s.o.Hooks.Forget(n.keys)
	}
	errs = append(errs, s.ack(ctx, slices.DeleteFunc(slices.Clone(tags), func(t *tag) bool { return !t.isLoaded || t.acked == t.at })))
	lacking = slices.DeleteFunc(slices.Clone(tags), func(t *tag) bool { return !t.isLacking })
	return again, lacking, errors.Join(errs...)
}

// logLost logs that changes were lost; anyone who can write to Redis could cause that at
// each look.
func (s *Store) logLost(tags int) {
	if n, due := s.lostLines.Due(time.Now(), logEvery); due {
		s.o.Log.Info("redis: changes of assignments were lost, or removed before they were seen; the assignments are loaded again", "hash_tags", tags, "unlogged_before", n)
	}
}

// follow reads what has changed since tags were last looked at. It returns those with
// more changes, those whose changes do not continue from there, and those of which Redis
// lacks something.
func (s *Store) follow(ctx context.Context, tags []*tag, n *news) (again, lost, behind []*tag, _ error) {
	if len(tags) == 0 {
		return nil, nil, nil, nil
	}
	replies := make([]*redis.XMessageSliceCmd, len(tags))
	epochs := make([]*redis.StringCmd, len(tags))
	err := s.pipelined(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		for i, t := range tags {
			// The last known change comes again, which shows that the stream is the same,
			// unless it was removed for its age.
			replies[i] = pipe.XRangeN(ctx, t.changes, t.at.String(), "+", pageOfChanges)
			epochs[i] = pipe.HGet(ctx, t.assigned, epochField)
		}
	})
	if errors.Is(err, redis.Nil) {
		err = nil // of a tag without an epoch
	}
	for i, t := range tags {
		changes, replyErr := replies[i].Result()
		epoch, epochErr := epochs[i].Result()
		if errors.Is(epochErr, redis.Nil) {
			epochErr = nil
		}
		if failed := cmp.Or(replyErr, epochErr); failed != nil {
			err = cmp.Or(err, failed)
			continue
		}
		isBehind, failed := s.isBehind(ctx, t, changes, epoch)
		if isBehind && t.isFromSnapshot {
			t.isFromSnapshot, t.putBackAfter = false, time.Now().Add(awaitOthers)
		}
		if isBehind {
			behind = append(behind, t)
			t.isLacking = true
			// If only the assignments are lost, the changes up to then continue from
			// here.
			if from := t.at; failed == nil && epoch == "" && len(changes) > 0 {
				if s.replay(t, changes, n); t.at != from {
					n.changed = append(n.changed, t)
				}
			}
		}
		if isBehind || failed != nil {
			err = cmp.Or(err, failed)
			continue
		}
		t.setEpoch(epoch)
		t.isFromSnapshot, t.putBackAfter = false, time.Time{}
		from := t.at
		if !s.replay(t, changes, n) {
			lost = append(lost, t)
			continue
		}
		if t.at != from {
			n.changed = append(n.changed, t)
		}
		if len(changes) == pageOfChanges {
			again = append(again, t)
		}
	}
	return again, lost, behind, err
}

// replay applies changes of a tag to the table, and reports whether they continue from
// what is there.
func (s *Store) replay(t *tag, changes []redis.XMessage, n *news) bool {
	if len(changes) == 0 {
		return t.at == streamID{}
	}
	if changes[0].ID == t.at.String() {
		changes = changes[1:]
	}
	for _, m := range changes {
		e, err := decodeEntry(t, m)
		if e.previous != t.at {
			return false
		}
		if err != nil {
			s.logForeign(t.changes+" "+m.ID, err)
		} else if e.record.Kind == assign.Restored && e.through != t.has {
			return false // it put back what this daemon does not have
		}
		s.put(t, &e, n)
		t.at = e.id
		t.noteRecent(e.id)
		if e.record.Kind != assign.Restored {
			t.has = e.id
		}
	}
	return true
}

// noteRecent remembers a record that was followed.
func (t *tag) noteRecent(id streamID) {
	if len(t.recent) == 2*maxRecent {
		t.recent = append(t.recent[:0], t.recent[maxRecent:]...)
	}
	t.recent = append(t.recent, id)
}

// put applies a change to the table and tells the watchers.
func (s *Store) put(t *tag, e *entry, n *news) {
	r := &e.record
	n.keys = append(n.keys, e.keys...)
	if r.Kind == assign.Restored {
		s.watchers.Tell(*r)
		return
	}
	if len(r.Entries) == 0 {
		return // it cannot be read
	}
	// A subject of another tag is not ours.
	if s.tagOf(r.Subject.Text()) == t && r.Kind != assign.WasReset {
		s.apply(t, r)
	}
	if !e.isSame && (r.Kind != assign.Assigned || r.After != nil) {
		s.watchers.Tell(*r)
	}
}

// renew acknowledges again what this daemon has in force, and removes the
// acknowledgements of daemons that are gone.
func (s *Store) renew(ctx context.Context) error {
	var used []*tag
	for _, t := range s.tags {
		if t.isLoaded {
			used = append(used, t)
		}
	}
	return errors.Join(s.ack(ctx, used), s.forgetGone(ctx, used), s.claimNumber(ctx))
}
