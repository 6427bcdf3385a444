package client

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ratelimitd/ratelimitd/client/internal/stream"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/proto/wire"
)

// SettleRequest says what takes with an ID have used. Any process can make it that knows
// the ID and what was asked.
type SettleRequest struct {
	// Domain and ID are those of the take.
	Domain, ID string
	// Descriptors are those of the take, with equal entries; at least one.
	Descriptors []Used
}

// Used is a descriptor of a take, and what it has used.
type Used struct {
	Entries []Entry
	// Cost is what was used; 0 for nothing.
	Cost uint64
	// Keep leaves the descriptor as it is, whatever Cost says.
	Keep bool
	// Numbers are those of the take, if it had some.
	Numbers *Numbers
}

// Settlement is what a settlement did.
type Settlement struct {
	// Settled reports whether something was settled. If not, nothing has changed: with
	// this ID nothing was taken from these limits, or all of it was denied or given back,
	// or it was too long ago.
	Settled bool
	// Limits that were settled or not, in the order of the descriptors.
	Limits []SettledLimit
	// Degraded reports whether some of it was taken, and settled, without the state that
	// all daemons share.
	Degraded bool
}

// SettledLimit is what a settlement did to one limit.
type SettledLimit struct {
	// Descriptor is the index of its descriptor in the request.
	Descriptor int
	// Name of the limit in the limits file; may be empty.
	Name      string
	Algorithm Algorithm
	// Settled reports whether takes with the ID have charged it; if not, the rest is 0.
	Settled bool
	// Returned is how much went back, as far as it still counted, and Added how much was
	// charged beyond what was taken.
	Returned, Added uint64
	// Takes is how many takes have the ID: more than 1 if it is used again.
	Takes uint64
	// Remaining is how much can still be taken at once, rounded down.
	Remaining uint64
	// ResetAfter is the time until the limit is full again, if no one takes.
	ResetAfter time.Duration
}

// Settle makes used what the takes with the request's ID have charged: each descriptor
// with a Cost gets it, others stay as they are. Less than was reserved goes back as far as
// it still counts, more is charged in full. It may be called again, also after an error:
// the last call counts, until SettleWithin has passed since the take.
//
// A take that the client decided itself (Failure) may have arrived all the same, so the
// daemon is asked to settle it too, unless it is known not to answer.
func (r *Result) Settle(ctx context.Context, used uint64) (*Settlement, error) {
	if r.client == nil {
		return nil, errors.New("client: settle: the result is not that of a take")
	}
	request, err := settleOf(r.take, used)
	if err != nil {
		return nil, err
	}
	if r.local == nil {
		return r.client.settle(ctx, request)
	}
	local, err := r.client.settleLocally(r.local, used)
	if err != nil || r.client.outage.is.Load() {
		return local, err
	}
	if done, err := r.client.settle(ctx, request); err == nil && done.Settled {
		return done, nil
	}
	return local, nil
}

// Settle makes the costs of the descriptors what takes with the ID have charged, as
// Result.Settle does. With several daemons, a Degraded take is only known to the one that
// decided it.
func (c *Client) Settle(ctx context.Context, r SettleRequest) (*Settlement, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	request := wire.AppendText(nil, settleDomain, r.Domain)
	request = wire.AppendText(request, settleID, r.ID)
	for i := range r.Descriptors {
		request = r.Descriptors[i].append(request)
	}
	return c.settle(ctx, request)
}

func (r *SettleRequest) check() error {
	if r.Domain == "" || !utf8.ValidString(r.Domain) {
		return fmt.Errorf("client: settle: domain: found %q; allowed: that of the take", r.Domain)
	}
	if err := checkID(r.ID); err != nil {
		return err
	}
	if r.ID == "" {
		return errors.New("client: settle: id is empty; a settlement has that of its take")
	}
	for i := range r.Descriptors {
		d := Descriptor{Entries: r.Descriptors[i].Entries}
		if err := d.check(); err != nil {
			return fmt.Errorf("client: settle: descriptors[%d].%w", i, err)
		}
	}
	return nil
}

func checkID(id string) error {
	if !utf8.ValidString(id) {
		return fmt.Errorf("client: id: found %q; allowed: UTF-8", id)
	}
	return nil
}

func (u *Used) append(dst []byte) []byte {
	dst, start := wire.BeginMessage(dst, settleDescriptors)
	for i := range u.Entries {
		dst = u.Entries[i].append(dst)
	}
	if !u.Keep {
		dst = appendCost(dst, u.Cost)
	}
	if u.Numbers != nil {
		dst = u.Numbers.append(dst)
	}
	return wire.EndMessage(dst, start)
}

// appendCost appends a cost, also one of 0.
func appendCost(dst []byte, cost uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, descriptorCost, wire.Varint), cost)
}

// settleOf returns the SettleRequest for a TakeRequest, in which each descriptor with a
// cost has used so much.
func settleOf(take []byte, used uint64) (request []byte, err error) {
	hasID, hasCost := false, false
	f := wire.Fields[[]byte]{Rest: take}
	for f.Next() {
		switch {
		case f.Is(takeDomain, wire.Bytes):
			request = wire.AppendText(request, settleDomain, string(f.Bytes))
		case f.Is(takeID, wire.Bytes):
			request = wire.AppendText(request, settleID, string(f.Bytes))
			hasID = true
		case f.Is(takeDescriptors, wire.Bytes):
			var start int
			request, start = wire.BeginMessage(request, settleDescriptors)
			d := wire.Fields[[]byte]{Rest: f.Bytes}
			for rest := d.Rest; d.Next(); rest = d.Rest {
				switch {
				case !d.Is(descriptorCost, wire.Varint):
					request = append(request, rest[:len(rest)-len(d.Rest)]...)
				case d.Varint > 0: // not a peek
					request, hasCost = appendCost(request, used), true
				}
			}
			request = wire.EndMessage(request, start)
		}
	}
	switch {
	case !hasID:
		return nil, errors.New("client: settle: the take has no ID")
	case !hasCost:
		return nil, errors.New("client: settle: no descriptor of the take has a Cost, which is what is settled")
	}
	return request, nil
}

// settle sends a SettleRequest and reads the answer.
func (c *Client) settle(ctx context.Context, request []byte) (*Settlement, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	k := stream.NewTake()
	k.Request, k.IsSettlement = request, true
	done := new(Settlement)
	err := c.pool.Ask(ctx, k)
	if err == nil {
		err = stream.Unreadable(done.read(k.Answer))
	}
	switch {
	case err == nil:
		return done, nil
	case c.ctx.Err() != nil:
		return nil, ErrClosed
	}
	c.stats.lostSettlements.Add(1)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, fmt.Errorf("client: settle: %w", err)
}

// settleLocally settles a charge of FailLocal.
func (c *Client) settleLocally(t *localTake, used uint64) (*Settlement, error) {
	store, err := c.localStore()
	if err != nil {
		return nil, err
	}
	var hits []bucket.Hit
	done := &Settlement{Degraded: true}
	for i, h := range t.hits {
		if t.hasCost[i] {
			h.Cost = int64(min(used, bucket.MaxCost))
			hits = append(hits, h)
			done.Limits = append(done.Limits, SettledLimit{Descriptor: i, Algorithm: Algorithm(h.Limit.Algorithm)})
		}
	}
	settled := make([]bucket.Settled, len(hits))
	if err := store.Settle(context.Background(), t.id, hits, settled); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	for i, s := range settled {
		l := &done.Limits[i]
		l.Settled, l.Returned, l.Added, l.Takes = s.IsKnown, uint64(s.Returned), uint64(s.Added), uint64(s.Takes)
		l.Remaining, l.ResetAfter = uint64(s.Remaining), s.ResetAfter
		done.Settled = done.Settled || s.IsKnown
	}
	return done, nil
}

func (s *Settlement) read(data []byte) error {
	f := wire.Fields[[]byte]{Rest: data}
	for f.Next() {
		switch {
		case f.Is(settledSettled, wire.Varint):
			s.Settled = f.Varint != 0
		case f.Is(settledLimits, wire.Bytes):
			var l SettledLimit
			if err := l.read(f.Bytes); err != nil {
				return err
			}
			s.Limits = append(s.Limits, l)
		case f.Is(settledDegraded, wire.Varint):
			s.Degraded = f.Varint != 0
		}
	}
	return f.Err
}

func (l *SettledLimit) read(data []byte) error {
	f := wire.Fields[[]byte]{Rest: data}
	for f.Next() {
		switch {
		case f.Is(settledDescriptor, wire.Varint):
			l.Descriptor = int(uint32(f.Varint))
		case f.Is(settledName, wire.Bytes):
			l.Name = string(f.Bytes)
		case f.Is(settledAlgorithm, wire.Varint):
			l.Algorithm = Algorithm(f.Varint)
		case f.Is(settledIsKnown, wire.Varint):
			l.Settled = f.Varint != 0
		case f.Is(settledReturned, wire.Varint):
			l.Returned = f.Varint
		case f.Is(settledAdded, wire.Varint):
			l.Added = f.Varint
		case f.Is(settledTakes, wire.Varint):
			l.Takes = f.Varint
		case f.Is(settledRemaining, wire.Varint):
			l.Remaining = f.Varint
		case f.Is(settledResetAfter, wire.Bytes):
			if err := readDuration(&l.ResetAfter, f.Bytes); err != nil {
				return err
			}
		}
	}
	return f.Err
}
