package client

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ratelimitd/ratelimitd/client/internal/stream"
	"github.com/ratelimitd/ratelimitd/proto/wire"
)

// The fields of the messages of proto/ratelimit/v1/ratelimit.proto. They are encoded and
// decoded by hand, because generated messages would cost more than the rest of a request
// here.
const (
	// TakeRequest
	takeDomain      = 1
	takeDescriptors = 2
	takeID          = 3
	takeWithin      = 4
	takeLease       = 5
	// SettleRequest
	settleDomain      = 1
	settleID          = 2
	settleDescriptors = 3
	// SettleResponse
	settledSettled  = 1
	settledLimits   = 2
	settledDegraded = 3
	// SettledLimit
	settledDescriptor = 1
	settledName       = 2
	settledAlgorithm  = 3
	settledIsKnown    = 4
	settledReturned   = 5
	settledAdded      = 6
	settledTakes      = 7
	settledRemaining  = 8
	settledResetAfter = 9
	// Descriptor
	descriptorEntries = 1
	descriptorCost    = 2
	descriptorNumbers = 3
	// Entry
	entryKey   = 1
	entryValue = 2
	// Numbers
	numbersRequests = 1
	numbersPeriod   = 2
	numbersBurst    = 3
	// GiveBackRequest
	giveBackTake    = 1
	giveBackTakenAt = 2
	giveBackTakenBy = 3
	// TakeResponse
	responseAllowed    = 1
	responseLimits     = 2
	responseDeniedBy   = 3
	responseRetryAfter = 4
	responseDegraded   = 5
	responseIsUnknown  = 6
	responseGranted    = 7
	responseGoodFor    = 8
	// Limit
	limitDescriptor = 1
	limitName       = 2
	limitAlgorithm  = 3
	limitRequests   = 4
	limitPeriod     = 5
	limitCapacity   = 6
	limitRemaining  = 7
	limitAllowed    = 8
	limitRetryAfter = 9
	limitResetAfter = 10
	limitWait       = 11
	limitTakenAt    = 12
	limitShadow     = 13
	limitTakenBy    = 14
	limitIsUnknown  = 15
	limitFreeAt     = 16
	limitHeldFor    = 17
	limitResetAt    = 18
	limitCalendar   = 19
	limitPausedFor  = 20
	// Calendar
	calendarUnit     = 1
	calendarTimeZone = 2
	calendarStarts   = 3
	// google.protobuf.Duration
	durationSeconds = 1
	durationNanos   = 2
)

// appendTake appends a TakeRequest. Without costs and the ID, requests about the same
// limits have the same bytes.
func appendTake(dst []byte, r *Request, withCosts bool) []byte {
	dst = wire.AppendText(dst, takeDomain, r.Domain)
	for i := range r.Descriptors {
		dst = r.Descriptors[i].append(dst, withCosts, r.ID != "", r.Holder)
	}
	if withCosts && r.ID != "" {
		dst = wire.AppendText(dst, takeID, r.ID)
		if r.SettleWithin != 0 {
			dst = wire.AppendDuration(dst, takeWithin, r.SettleWithin)
		}
	}
	return dst
}

// append appends a Descriptor. In a take with an ID a cost of 1 is written too: it says
// that the descriptor is one to settle.
func (d *Descriptor) append(dst []byte, withCost, isNamed bool, holder string) []byte {
	dst, start := wire.BeginMessage(dst, takeDescriptors)
	for i := range d.Entries {
		dst = d.Entries[i].append(dst)
	}
	if d.HolderKey != "" {
		e := Entry{Key: d.HolderKey, Value: holder}
		dst = e.append(dst)
	}
	if withCost && (d.Peek || d.Cost > 1 || isNamed && d.Cost > 0) {
		// A missing cost means 1, so that of a peek is written though it is 0.
		dst = appendCost(dst, d.Cost)
	}
	if d.Numbers != nil {
		dst = d.Numbers.append(dst)
	}
	return wire.EndMessage(dst, start)
}

func (e *Entry) append(dst []byte) []byte {
	dst, start := wire.BeginMessage(dst, descriptorEntries)
	dst = wire.AppendText(dst, entryKey, e.Key)
	dst = wire.AppendText(dst, entryValue, e.Value)
	return wire.EndMessage(dst, start)
}

func (n *Numbers) append(dst []byte) []byte {
	dst, start := wire.BeginMessage(dst, descriptorNumbers)
	dst = wire.AppendNumber(dst, numbersRequests, uint64(n.Requests))
	dst = wire.AppendDuration(dst, numbersPeriod, n.Period)
	dst = wire.AppendNumber(dst, numbersBurst, uint64(n.Burst))
	return wire.EndMessage(dst, start)
}

// appendGiveBack appends the GiveBackRequest of a take.
func appendGiveBack(dst []byte, r *Result) []byte {
	dst = protowire.AppendBytes(protowire.AppendTag(dst, giveBackTake, wire.Bytes), r.take)
	dst, start := wire.BeginMessage(dst, giveBackTakenAt)
	for i := range r.Limits {
		dst = protowire.AppendVarint(dst, uint64(r.Limits[i].takenAt))
	}
	dst = wire.EndMessage(dst, start)
	dst, start = wire.BeginMessage(dst, giveBackTakenBy)
	for i := range r.Limits {
		dst = protowire.AppendFixed64(dst, r.Limits[i].takenBy)
	}
	return wire.EndMessage(dst, start)
}

// readResponse reads a TakeResponse: all of it into k.result, or only whether it allows
// if that is nil and the request cannot be leased.
func (k *call) readResponse(data []byte) error {
	k.leasable = nil
	answer := k.result
	if answer == nil {
		hasLease := false
		k.allowed = false
		f := wire.Fields[[]byte]{Rest: data}
		for f.Next() {
			switch {
			case f.Is(responseAllowed, wire.Varint):
				k.allowed = f.Varint != 0
			case f.Is(responseGoodFor, wire.Bytes), f.Is(responseGranted, wire.Varint):
				hasLease = true
			}
		}
		if !hasLease || f.Err != nil {
			return stream.Unreadable(f.Err)
		}
		answer = new(Result)
	}
	err := answer.read(data)
	k.allowed = answer.Allowed
	if answer.goodFor > 0 || answer.granted > 0 {
		k.leasable = answer // and what is good for no time goes back
	}
	return stream.Unreadable(err)
}

func (r *Result) read(data []byte) error {
	r.DeniedBy = -1
	f := wire.Fields[[]byte]{Rest: data}
	for f.Next() {
		switch {
		case f.Is(responseAllowed, wire.Varint):
			r.Allowed = f.Varint != 0
		case f.Is(responseLimits, wire.Bytes):
			var l Limited
			if err := l.read(f.Bytes); err != nil {
				return err
			}
			r.Limits = append(r.Limits, l)
		case f.Is(responseDeniedBy, wire.Varint):
			r.DeniedBy = int(uint32(f.Varint))
		case f.Is(responseRetryAfter, wire.Bytes):
			if err := readDuration(&r.RetryAfter, f.Bytes); err != nil {
				return err
			}
		case f.Is(responseDegraded, wire.Varint):
			r.Degraded = f.Varint != 0
		case f.Is(responseIsUnknown, wire.Varint) && f.Varint != 0:
			r.RetryAfter = RetryUnknown
		case f.Is(responseGranted, wire.Varint):
			r.granted = f.Varint
		case f.Is(responseGoodFor, wire.Bytes):
			if err := readDuration(&r.goodFor, f.Bytes); err != nil {
				return err
			}
		}
	}
	if !r.Allowed && r.RetryAfter <= 0 && r.RetryAfter != RetryUnknown {
		r.RetryAfter = Never
	}
	return f.Err
}

func (l *Limited) read(data []byte) error {
	f := wire.Fields[[]byte]{Rest: data}
	for f.Next() {
		var err error
		switch {
		case f.Is(limitDescriptor, wire.Varint):
			l.Descriptor = int(uint32(f.Varint))
		case f.Is(limitName, wire.Bytes):
			l.Name = string(f.Bytes)
		case f.Is(limitAlgorithm, wire.Varint):
			l.Algorithm = Algorithm(f.Varint)
		case f.Is(limitRequests, wire.Varint):
			l.Requests = f.Varint
		case f.Is(limitPeriod, wire.Bytes):
			err = readDuration(&l.Period, f.Bytes)
		case f.Is(limitCapacity, wire.Varint):
			l.Capacity = f.Varint
		case f.Is(limitRemaining, wire.Varint):
			l.Remaining = f.Varint
		case f.Is(limitAllowed, wire.Varint):
			l.Allowed = f.Varint != 0
		case f.Is(limitRetryAfter, wire.Bytes):
			err = readDuration(&l.RetryAfter, f.Bytes)
		case f.Is(limitResetAfter, wire.Bytes):
			err = readDuration(&l.ResetAfter, f.Bytes)
		case f.Is(limitWait, wire.Bytes):
			err = readDuration(&l.Wait, f.Bytes)
		case f.Is(limitTakenAt, wire.Varint):
			l.takenAt = int64(f.Varint)
		case f.Is(limitShadow, wire.Varint):
			l.Shadow = f.Varint != 0
		case f.Is(limitTakenBy, wire.Fixed64):
			l.takenBy = f.Varint
		case f.Is(limitIsUnknown, wire.Varint) && f.Varint != 0:
			l.RetryAfter = RetryUnknown
		case f.Is(limitFreeAt, wire.Bytes):
			err = readDuration(&l.FreeAtLatest, f.Bytes)
		case f.Is(limitHeldFor, wire.Bytes):
			err = readDuration(&l.HeldFor, f.Bytes)
		case f.Is(limitResetAt, wire.Bytes):
			// A Timestamp has the fields of a Duration.
			var sinceEpoch time.Duration
			err = readDuration(&sinceEpoch, f.Bytes)
			l.ResetAt = time.Unix(0, int64(sinceEpoch))
		case f.Is(limitCalendar, wire.Bytes):
			err = l.Calendar.read(f.Bytes)
		case f.Is(limitPausedFor, wire.Bytes):
			err = readDuration(&l.PausedFor, f.Bytes)
		}
		if err != nil {
			return err
		}
	}
	if !l.Allowed && l.RetryAfter <= 0 && l.RetryAfter != RetryUnknown {
		l.RetryAfter = Never
	}
	return f.Err
}

func (c *Calendar) read(data []byte) error {
	f := wire.Fields[[]byte]{Rest: data}
	for f.Next() {
		switch {
		case f.Is(calendarUnit, wire.Varint):
			c.Unit = CalendarUnit(f.Varint)
		case f.Is(calendarTimeZone, wire.Bytes):
			c.TimeZone = string(f.Bytes)
		case f.Is(calendarStarts, wire.Bytes):
			c.Starts = string(f.Bytes)
		}
	}
	return f.Err
}

func readDuration(d *time.Duration, data []byte) error {
	f := wire.Fields[[]byte]{Rest: data}
	for f.Next() {
		switch {
		case f.Is(durationSeconds, wire.Varint):
			*d += time.Duration(f.Varint) * time.Second
		case f.Is(durationNanos, wire.Varint):
			*d += time.Duration(f.Varint)
		}
	}
	return f.Err
}
