package redislog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
)

// errLost is why the assignments in Redis cannot be read or changed at the moment.
var errLost = errors.New("redis has lost the assignments, and a daemon is putting them back")

// restoreLives is for how many looks a daemon that puts back may be silent.
const restoreLives = 10

// restore puts back what the table has if Redis has nothing, or what was put back there is
// older. Otherwise it reports whether Redis has assignments to load. s.mu is held.
func (s *Store) restore(ctx context.Context) (isThere bool, _ error) {
	token := fmt.Sprintf("%016x", rand.Uint64())
	sent := 0
	send := func(begins string, record []byte, page []any) (reply string, err error) {
		args := append([]any{token, (restoreLives * s.o.Every).Milliseconds(), begins, record, sent}, page...)
		sent += len(page) / 2
		reply, err = s.appendRecords(ctx, restoreScript, s.has.String(), args...).Text()
		if err == nil && reply == "WAIT" {
			err = errLost
		}
		return reply, err
	}
	if reply, err := send("1", nil, nil); err != nil || reply == "THERE" {
		return err == nil, err
	}
	n, now := 0, s.now()
	var page []any
	for a := range s.table.All() {
		if a.InForce(now) == nil {
			continue
		}
		n++
		if page = append(page, a.Text(), encodeValue(a)); len(page) == 2*pageOfAssignments {
			if _, err := send("", nil, page); err != nil {
				return false, err
			}
			page = page[:0]
		}
	}
	record := assign.Record{Kind: assign.Restored, By: s.o.Name, Restored: n}
	reply, err := send("", assign.EncodeRecord(&record), page)
	if err != nil {
		return false, err
	}
	id, err := parseID(reply)
	if err != nil {
		return false, err
	}
	has := s.has
	s.setPosition(id)
	s.isBegun, s.has = true, has
	if n > 0 {
		s.restored.Add(int64(n))
		s.o.Log.Error("redis: assignments that Redis had lost were put back", "assignments", n, "as_of", time.UnixMicro(has.micros()).UTC().Format(time.RFC3339))
	}
	record.ID, record.Moment = reply, id.micros()
	s.watchers.Notify(record)
	return false, nil
}
