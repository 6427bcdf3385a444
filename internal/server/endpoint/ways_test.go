package endpoint_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// way is one way to ask a server.
type way interface {
	// take asks about descriptors and returns the decision of each limit of each.
	take(ctx context.Context, asked []asked) ([]bucket.Decision, error)
	giveBack(ctx context.Context, asked []asked, takenAt []int64) error
}

// asked is a descriptor.
type asked struct {
	entries []bucket.Entry
	cost    int64
	numbers *bucket.Limit // of its own, or nil
}

// wayStore is a bucket.Store that asks a server on the domain d in one way. It
// loads the limits of the hits into the server.
type wayStore struct {
	d     *servertest.Daemon
	way   way
	envoy way // for refunds, which only Envoy's API has
	// inUnits reports whether numbers in a request have 32 bits, and their period in units.
	inUnits bool

	mu    sync.Mutex
	keys  map[string]string // of descriptors, by their values
	rules map[place]rule    // in force
}

// place is the place of a rule in the limits file.
type place struct{ key, value string }

// rule is a rule of the file, for one or several hits.
type rule struct {
	limits [2]bucket.Spec
	n      int
	role   bucket.Role // Enforced, Aside, or Quota(1) for any
}

// maxRules bounds the limits file of a long test.
const maxRules = 40

// Take implements bucket.Store.
func (s *wayStore) Take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	descriptors, err := s.ask(hits)
	if err != nil {
		return err
	}
	way := s.way
	if isRefund(hits) {
		way = s.envoy
	}
	got, err := way.take(ctx, descriptors)
	if err != nil {
		if status.Code(err) == codes.Canceled {
			err = fmt.Errorf("%w: %w", context.Canceled, err)
		}
		return err
	}
	if len(got) != len(hits) {
		return fmt.Errorf("%d limits answered for %d hits", len(got), len(hits))
	}
	copy(decisions, got)
	return nil
}

// GiveBack implements bucket.Store.
func (s *wayStore) GiveBack(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	if len(hits) == 0 {
		return nil
	}
	descriptors, err := s.ask(hits)
	if err != nil {
		return err
	}
	var takenAt []int64
	for _, d := range decisions {
		takenAt = append(takenAt, d.At)
	}
	return s.way.giveBack(ctx, descriptors, takenAt)
}

// Reserve implements bucket.Store, but few ways have IDs.
func (s *wayStore) Reserve(context.Context, bucket.Reservation, []bucket.Hit, []bucket.Decision) error {
	return errors.New("this way has no IDs")
}

// Settle implements bucket.Store, but few ways settle.
func (s *wayStore) Settle(context.Context, string, []bucket.Hit, []bucket.Settled) error {
	return errors.New("this way has no IDs")
}

// Check implements bucket.Store, but no API can check.
func (s *wayStore) Check(context.Context, []bucket.Hit, []bucket.Decision) error {
	return errors.New("no API asks without taking")
}

// Locate implements bucket.Store, but no API says where states are.
func (s *wayStore) Locate(*bucket.Hit) bucket.Location { return bucket.Location{} }

// Forget implements bucket.Store, but none of these APIs forgets.
func (s *wayStore) Forget([]string) {}

// Ping implements bucket.Store.
func (s *wayStore) Ping(context.Context) error {
	if health := s.d.Check(""); health != "SERVING" {
		return errors.New(health)
	}
	return nil
}

// Close implements bucket.Store. The test ends the server.
func (s *wayStore) Close() error { return nil }

// ask makes descriptors of hits and loads the rules that they need. Each hit
// has a rule of its own; the hits of one quota share a rule.
func (s *wayStore) ask(hits []bucket.Hit) ([]asked, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var descriptors []asked
	needed, changed := map[place]bool{}, false
	for len(hits) > 0 {
		n := 1
		for n < len(hits) && hits[0].Role > bucket.Enforced && hits[n].Role == hits[0].Role {
			n++
		}
		d, p, isNew, err := s.describe(hits[:n], needed)
		if err != nil {
			return nil, err
		}
		needed[p], changed = true, changed || isNew
		descriptors, hits = append(descriptors, d), hits[n:]
	}
	if !changed {
		return descriptors, nil
	}
	for p := range s.rules {
		if len(s.rules) > maxRules && !needed[p] {
			delete(s.rules, p)
		}
	}
	s.d.Write(s.file())
	return descriptors, s.d.Live.Reload()
}

// describe returns the descriptor for the hits of one rule, the rule's place,
// and whether the rule must be loaded. The value of the descriptor is the keys
// of the hits, so hits share a state exactly if they share a key.
func (s *wayStore) describe(hits []bucket.Hit, needed map[place]bool) (d asked, p place, isNew bool, err error) {
	want := rule{n: len(hits), role: min(hits[0].Role, bucket.Quota(1))}
	if len(hits) > len(want.limits) {
		return d, p, false, fmt.Errorf("%d hits of one quota", len(hits))
	}
	value := ""
	for i, h := range hits {
		want.limits[i] = h.Limit.Spec
		value += asText(h.Key)
	}
	key := s.keyOf(value, want)
	d = asked{entries: []bucket.Entry{{Key: key, Value: value}}, cost: hits[0].Cost}
	p = place{key, value}
	have, loaded := s.rules[p]
	if !loaded {
		p.value = ""
		have, loaded = s.rules[p]
	}
	switch {
	case have == want:
		return d, p, false, nil
	case loaded && s.canBring(have, want):
		d.numbers = hits[0].Limit
		return d, p, false, nil
	case loaded: // for others
		p.value = value
	}
	if needed[p] {
		return d, p, false, fmt.Errorf("two rules for %s in one request", value)
	}
	s.rules[p] = want
	return d, p, true, nil
}

// keyOf returns the descriptor's key for a value, the same each time. A new
// value gets the key of an equal rule if there is one.
func (s *wayStore) keyOf(value string, want rule) string {
	if s.keys == nil {
		s.keys, s.rules = map[string]string{}, map[place]rule{}
	}
	if s.keys[value] == "" {
		s.keys[value] = fmt.Sprint("k", len(s.keys))
		for p, r := range s.rules {
			if p.value == "" && r == want {
				s.keys[value] = p.key
			}
		}
	}
	return s.keys[value]
}

// asText returns a key. Only text can be sent, so other keys are quoted.
func asText(key []byte) string {
	if utf8.Valid(key) {
		return string(key)
	}
	return strconv.QuoteToASCII(string(key))
}

// canBring reports whether numbers in a request turn the limit of one rule
// into the other.
func (s *wayStore) canBring(have, want rule) bool {
	if have.n != 1 || want.n != 1 || have.role != bucket.Enforced || want.role != bucket.Enforced {
		return false
	}
	a, b := have.limits[0], want.limits[0]
	if s.inUnits && (b.Requests > math.MaxUint32 || b.Period%time.Second != 0 || b.Burst != 0 && b.Burst != b.Requests) {
		return false
	}
	if a.Algorithm.IsBucket() && (b.Requests > a.Requests || max(b.Burst, b.Requests) > max(a.Burst, a.Requests)) {
		return false // they have a state of their own
	}
	a.Requests, a.Burst, b.Requests, b.Burst = 0, 0, 0, 0
	return a == b && b.Calendar.Unit == bucket.NoCalendar
}

// file returns the rules as a limits file. JSON is YAML.
func (s *wayStore) file() string {
	type limit struct {
		Name       string `json:"name,omitempty"`
		Algorithm  string `json:"algorithm"`
		Requests   int64  `json:"requests"`
		Period     string `json:"period,omitempty"`
		Calendar   string `json:"calendar,omitempty"`
		TimeZone   string `json:"time_zone,omitempty"`
		Starts     string `json:"starts,omitempty"`
		Burst      int64  `json:"burst,omitempty"`
		SubWindows int64  `json:"sub_windows,omitempty"`
		Postpaid   any    `json:"postpaid"`
		BlockFor   string `json:"block_for,omitempty"`
		Lease      string `json:"lease,omitempty"`
	}
	type descriptor struct {
		Key        string  `json:"key"`
		Value      string  `json:"value,omitempty"`
		ShadowMode bool    `json:"shadow_mode,omitempty"`
		QuotaMode  bool    `json:"quota_mode,omitempty"`
		RateLimit  *limit  `json:"rate_limit,omitempty"`
		RateLimits []limit `json:"rate_limits,omitempty"`
	}
	inFile := map[bucket.Postpaid]any{bucket.PostpaidNever: false, bucket.PostpaidAlways: true, bucket.PostpaidAuto: "auto"}
	var file struct {
		Domain      string       `json:"domain"`
		Descriptors []descriptor `json:"descriptors"`
	}
	file.Domain = "d"
	for p, r := range s.rules {
		d := descriptor{Key: p.key, Value: p.value, ShadowMode: r.role == bucket.Aside, QuotaMode: r.role > bucket.Enforced}
		for i, l := range r.limits[:r.n] {
			name := l.Name
			if r.n > 1 {
				name = fmt.Sprint("limit", i)
			}
			written := limit{Name: name, Algorithm: l.Algorithm.String(), Requests: l.Requests, Burst: l.Burst, SubWindows: l.SubWindows, Postpaid: inFile[l.Postpaid]}
			if l.BlockFor != 0 {
				written.BlockFor = fmt.Sprintf("%dms", l.BlockFor.Milliseconds())
			}
			if l.Lease != 0 {
				written.Lease = fmt.Sprintf("%dms", l.Lease.Milliseconds())
			}
			if c := l.Calendar; c.Unit != bucket.NoCalendar {
				written.Calendar, written.TimeZone, written.Starts = c.Unit.String(), c.Zone.String(), c.Starts.In(c.Unit)
			} else {
				written.Period = fmt.Sprintf("%dms", l.Period.Milliseconds())
			}
			d.RateLimits = append(d.RateLimits, written)
		}
		if r.n == 1 {
			d.RateLimit, d.RateLimits = &d.RateLimits[0], nil
		}
		file.Descriptors = append(file.Descriptors, d)
	}
	text, err := json.Marshal(file)
	if err != nil {
		panic(err) // the type is above
	}
	return string(text)
}

func (a *asked) forEnvoy() *ratelimitv3.RateLimitDescriptor {
	d := &ratelimitv3.RateLimitDescriptor{
		HitsAddend:     wrapperspb.UInt64(uint64(max(a.cost, -a.cost))),
		IsNegativeHits: a.cost < 0,
	}
	for _, e := range a.entries {
		d.Entries = append(d.Entries, servertest.Entry(e.Key, e.Value))
	}
	if a.cost == math.MinInt64 {
		d.HitsAddend = wrapperspb.UInt64(1 << 63)
	}
	if l := a.numbers; l != nil {
		d.Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{
			RequestsPerUnit: uint32(l.Requests), Unit: typev3.RateLimitUnit_SECOND, UnitMultiplier: wrapperspb.UInt32(uint32(l.Period / time.Second)),
		}
	}
	return d
}

func takeOf(descriptors []asked) *ratelimitv1.TakeRequest {
	r := &ratelimitv1.TakeRequest{Domain: "d"}
	for _, a := range descriptors {
		d := &ratelimitv1.Descriptor{Cost: proto.Uint64(uint64(a.cost))}
		for _, e := range a.entries {
			d.Entries = append(d.Entries, &ratelimitv1.Entry{Key: e.Key, Value: e.Value})
		}
		if l := a.numbers; l != nil {
			d.Numbers = &ratelimitv1.Numbers{Requests: uint64(l.Requests), Period: durationpb.New(l.Period), Burst: uint64(l.Burst)}
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}
