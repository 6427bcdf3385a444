package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// billSize is the length in bytes of a bill in Redis: seven doubles, see
// script/lua/bills.lua.
const billSize = 7 * 8

// Bill returns what the takes of an ID have charged to the hit's state, and the clock of
// Redis; the zero Bill if nothing is known of the ID. It reads the bill beside the script,
// which may change it meanwhile, and knows nothing of what the fallback took.
func (s *Store) Bill(ctx context.Context, id string, h *bucket.Hit) (b bucket.Bill, clock int64, err error) {
	tag, state := s.backend.locate(h)
	server, err := s.serverOf(ctx, tag)
	if err != nil {
		return b, 0, fmt.Errorf("redis: %w", err)
	}
	if clock, err = s.clockOf(ctx, server); err != nil {
		return b, 0, s.explain(tag, err)
	}
	key := string(bucket.AppendBill(nil, []byte(state), id))
	values, err := server.MGet(ctx, key).Result() // the script's user need not have GET
	if err != nil {
		return b, 0, s.explain(tag, err)
	}
	value, isThere := values[0].(string)
	if !isThere {
		return b, clock, nil
	}
	if b, err = readBill(value); err != nil {
		return b, clock, fmt.Errorf("redis: the key %q: %w", key, err)
	}
	if !b.IsKnown(clock) {
		b = bucket.Bill{}
	}
	return b, clock, nil
}

// readBill reads a bill as the script writes it.
func readBill(value string) (b bucket.Bill, err error) {
	if len(value) != billSize {
		return b, fmt.Errorf("found %d bytes; a bill has %d", len(value), billSize)
	}
	fields := [...]*int64{
		&b.Until, &b.Takes, &b.Pace,
		&b.Portions[0].At, &b.Portions[0].Cost, &b.Portions[1].At, &b.Portions[1].Cost,
	}
	for i, to := range fields {
		n := math.Float64frombits(binary.LittleEndian.Uint64([]byte(value[8*i:])))
		if !(n >= 0 && n <= 1<<53) || n != math.Trunc(n) {
			return bucket.Bill{}, fmt.Errorf("found the number %v; a bill has whole ones from 0 to 2^53", n)
		}
		*to = int64(n)
	}
	return b, nil
}
