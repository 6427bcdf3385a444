package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// door is one way to ask a server.
type door interface {
	// take asks about descriptors and tells what each limit of each said.
	take(ctx context.Context, asked []asked) ([]bucket.Decision, error)
	giveBack(ctx context.Context, asked []asked, takenAt []int64) error
}

// asked is a descriptor.
type asked struct {
	entries []bucket.Entry
	cost    int64
	numbers *bucket.Limit // of its own, or nil
}

// doorStore is a bucket.Store behind a door of a server on the domain d. It has
// the server serve what limits the hits have.
type doorStore struct {
	d     *daemon
	door  door
	envoy door // for refunds, which are Envoy's alone
	// inUnits is whether numbers in a request have their period in units.
	inUnits bool

	mu    sync.Mutex
	keys  map[string]string // of descriptors, by their values
	rules map[place]rule    // in force
}

// place is where a rule stands in the limits file.
type place struct{ key, value string }

// rule is what stands there. It is written for one or several hits.
type rule struct {
	limits [2]bucket.Spec
	n      int
	role   bucket.Role // Enforced, Aside, or Quota(1) for any
}

// maxRules bounds the limits file of a long test.
const maxRules = 40

// Take implements bucket.Store.
func (s *doorStore) Take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	descriptors, err := s.ask(hits)
	if err != nil {
		return err
	}
	door := s.door
	if isRefund(hits) {
		door = s.envoy
	}
	got, err := door.take(ctx, descriptors)
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
func (s *doorStore) GiveBack(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
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
	return s.door.giveBack(ctx, descriptors, takenAt)
}

// Check implements bucket.Store, but no door has it.
func (s *doorStore) Check(context.Context, []bucket.Hit, []bucket.Decision) error {
	return errors.New("no door asks without taking")
}

// Ping implements bucket.Store.
func (s *doorStore) Ping(context.Context) error {
	if health := s.d.check(""); health != "SERVING" {
		return errors.New(health)
	}
	return nil
}

// Close implements bucket.Store. The test ends the server.
func (s *doorStore) Close() error { return nil }

// ask makes descriptors of hits, each of a rule of its own but for those of one
// quota, and has the rules in force.
func (s *doorStore) ask(hits []bucket.Hit) ([]asked, error) {
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
	s.d.write(s.file())
	return descriptors, s.d.live.Reload()
}

// describe returns the descriptor of the hits of one rule, where that stands,
// and whether it is to be loaded. The hits' keys are the descriptor's value, so
// that what shares a key shares a state and nothing else does.
func (s *doorStore) describe(hits []bucket.Hit, needed map[place]bool) (d asked, p place, isNew bool, err error) {
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

// keyOf returns the descriptor's key that goes with the value from its first
// time on: where there is one that of such a rule.
func (s *doorStore) keyOf(value string, want rule) string {
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

// asText returns a key, quoted where it is no text, for that cannot be sent.
func asText(key []byte) string {
	if utf8.Valid(key) {
		return string(key)
	}
	return strconv.QuoteToASCII(string(key))
}

// canBring reports whether the limit of a rule becomes another one by numbers
// that a request brings.
func (s *doorStore) canBring(have, want rule) bool {
	if have.n != 1 || want.n != 1 || have.role != bucket.Enforced || want.role != bucket.Enforced {
		return false
	}
	a, b := have.limits[0], want.limits[0]
	if s.inUnits && (b.Period%time.Second != 0 || b.Burst != 0 && b.Burst != b.Requests) {
		return false
	}
	a.Requests, a.Burst, b.Requests, b.Burst = 0, 0, 0, 0
	return a == b
}

// file returns the rules as a limits file. JSON is YAML.
func (s *doorStore) file() string {
	type limit struct {
		Name       string `json:"name,omitempty"`
		Algorithm  string `json:"algorithm"`
		Requests   int64  `json:"requests"`
		Period     string `json:"period"`
		Burst      int64  `json:"burst,omitempty"`
		SubWindows int64  `json:"sub_windows,omitempty"`
		Postpaid   bool   `json:"postpaid,omitempty"`
	}
	type descriptor struct {
		Key        string  `json:"key"`
		Value      string  `json:"value,omitempty"`
		ShadowMode bool    `json:"shadow_mode,omitempty"`
		QuotaMode  bool    `json:"quota_mode,omitempty"`
		RateLimit  *limit  `json:"rate_limit,omitempty"`
		RateLimits []limit `json:"rate_limits,omitempty"`
	}
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
			d.RateLimits = append(d.RateLimits, limit{
				name, l.Algorithm.String(), l.Requests, fmt.Sprintf("%dms", l.Period.Milliseconds()), l.Burst, l.SubWindows, l.Postpaid,
			})
		}
		if r.n == 1 {
			d.RateLimit, d.RateLimits = &d.RateLimits[0], nil
		}
		file.Descriptors = append(file.Descriptors, d)
	}
	text, err := json.Marshal(file)
	if err != nil {
		panic(err) // it stands above
	}
	return string(text)
}

// envoyDoor asks in Envoy's messages.
type envoyDoor struct {
	send func(ctx context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error)
}

func openEnvoy(d *daemon) door {
	return envoyDoor{func(ctx context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
		return d.rls.ShouldRateLimit(ctx, r)
	}}
}

func openJSON(d *daemon) door {
	return envoyDoor{func(ctx context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
		response := new(rlsv3.RateLimitResponse)
		return response, d.postMessage(ctx, "/json", r, response)
	}}
}

// postMessage posts a message and reads the answer.
func (d *daemon) postMessage(ctx context.Context, path string, request, response proto.Message) error {
	body, err := protojson.Marshal(request)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.srv.Address("http")+path, strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	answer, err := d.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusTooManyRequests {
		return fmt.Errorf("%s: %s", answer.Status, text)
	}
	return protojson.Unmarshal(text, response)
}

func (e envoyDoor) take(ctx context.Context, descriptors []asked) ([]bucket.Decision, error) {
	r := &rlsv3.RateLimitRequest{Domain: "d"}
	for _, a := range descriptors {
		r.Descriptors = append(r.Descriptors, a.forEnvoy())
	}
	response, err := e.send(ctx, r)
	if err != nil {
		return nil, err
	}
	retry := bucket.Never
	for _, h := range response.GetResponseHeadersToAdd() {
		if h.GetKey() == "retry-after" {
			seconds, err := strconv.Atoi(h.GetValue())
			if err != nil {
				return nil, err
			}
			retry = time.Duration(seconds) * time.Second
		}
	}
	var decisions []bucket.Decision
	over := false
	for _, s := range response.GetStatuses() {
		d := bucket.Decision{Remaining: int64(s.GetLimitRemaining()), ResetAfter: s.GetDurationUntilReset().AsDuration()}
		if s.GetCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
			d.RetryAfter, over = retry, true
		}
		decisions = append(decisions, d)
	}
	if code := response.GetOverallCode(); over != (code == rlsv3.RateLimitResponse_OVER_LIMIT) {
		return nil, fmt.Errorf("the overall code %s belies %v", code, response)
	}
	return decisions, nil
}

func (a *asked) forEnvoy() *ratelimitv3.RateLimitDescriptor {
	d := &ratelimitv3.RateLimitDescriptor{
		HitsAddend:     wrapperspb.UInt64(uint64(max(a.cost, -a.cost))),
		IsNegativeHits: a.cost < 0,
	}
	for _, e := range a.entries {
		d.Entries = append(d.Entries, entry(e.Key, e.Value))
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

func (e envoyDoor) giveBack(context.Context, []asked, []int64) error {
	return errors.New("Envoy's RPC has no give-back")
}

// takeDoor asks in the daemon's own messages.
type takeDoor struct {
	send func(ctx context.Context, r *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error)
	back func(ctx context.Context, r *ratelimitv1.GiveBackRequest) error
}

// overGRPC returns a door that gives back by an RPC.
func overGRPC(d *daemon, send func(ctx context.Context, r *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error)) door {
	return takeDoor{send, func(ctx context.Context, r *ratelimitv1.GiveBackRequest) error {
		_, err := d.api().GiveBack(ctx, r)
		return err
	}}
}

func openTake(d *daemon) door {
	api := d.api()
	return overGRPC(d, func(ctx context.Context, r *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
		return api.Take(ctx, r)
	})
}

// openTakeMany asks between two others, which nobody limits.
func openTakeMany(d *daemon) door {
	api, other := d.api(), &ratelimitv1.TakeRequest{Domain: "nobody", Descriptors: []*ratelimitv1.Descriptor{{}}}
	return overGRPC(d, func(ctx context.Context, r *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
		many, err := api.TakeMany(ctx, &ratelimitv1.TakeManyRequest{Takes: []*ratelimitv1.TakeRequest{other, r, other}})
		if err != nil {
			return nil, err
		}
		return ofResult(many.GetResults()[1])
	})
}

func ofResult(r *ratelimitv1.TakeResult) (*ratelimitv1.TakeResponse, error) {
	if e := r.GetError(); e != nil {
		return nil, status.Error(codes.Code(e.GetCode()), e.GetMessage())
	}
	return r.GetResponse(), nil
}

func openHTTPTake(d *daemon) door {
	return takeDoor{
		func(ctx context.Context, r *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
			response := new(ratelimitv1.TakeResponse)
			return response, d.postMessage(ctx, "/v1/take", r, response)
		},
		func(ctx context.Context, r *ratelimitv1.GiveBackRequest) error {
			return d.postMessage(ctx, "/v1/give-back", r, new(ratelimitv1.GiveBackResponse))
		},
	}
}

// openTakeStream asks on one stream, from as many callers as there are.
func openTakeStream(d *daemon) door {
	s := d.stream()
	var mu sync.Mutex
	waiting, last := map[uint64]chan *ratelimitv1.TakeResult{}, uint64(0)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			for _, n := range r.GetResults() {
				mu.Lock()
				waiting[n.GetNumber()] <- n.GetResult()
				delete(waiting, n.GetNumber())
				mu.Unlock()
			}
		}
	}()
	return overGRPC(d, func(ctx context.Context, r *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
		answer := make(chan *ratelimitv1.TakeResult, 1)
		mu.Lock()
		last++
		waiting[last] = answer
		err := s.Send(numbered(last, r))
		mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case result := <-answer:
			return ofResult(result)
		case <-ended:
			return nil, errors.New("the stream has ended")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
}

func (t takeDoor) take(ctx context.Context, descriptors []asked) ([]bucket.Decision, error) {
	response, err := t.send(ctx, takeOf(descriptors))
	if err != nil {
		return nil, err
	}
	var decisions []bucket.Decision
	for _, l := range response.GetLimits() {
		d := bucket.Decision{
			Remaining: int64(l.GetRemaining()), RetryAfter: l.GetRetryAfter().AsDuration(),
			ResetAfter: l.GetResetAfter().AsDuration(), Wait: l.GetWait().AsDuration(), At: l.GetTakenAt(),
		}
		if !l.GetAllowed() && l.GetRetryAfter() == nil {
			d.RetryAfter = bucket.Never
		}
		if d.Allowed() != l.GetAllowed() {
			return nil, fmt.Errorf("a limit belies itself: %v", l)
		}
		decisions = append(decisions, d)
	}
	if response.GetAllowed() != (response.DeniedBy == nil) {
		return nil, fmt.Errorf("denied by nothing, or allowed: %v", response)
	}
	return decisions, nil
}

func takeOf(descriptors []asked) *ratelimitv1.TakeRequest {
	r := &ratelimitv1.TakeRequest{Domain: "d"}
	for _, a := range descriptors {
		d := &ratelimitv1.Descriptor{Cost: proto.Uint64(uint64(a.cost))}
		for _, e := range a.entries {
			d.Entries = append(d.Entries, &ratelimitv1.Entry{Key: e.Key, Value: e.Value})
		}
		if l := a.numbers; l != nil {
			d.Numbers = &ratelimitv1.Numbers{Requests: uint32(l.Requests), Period: durationpb.New(l.Period), Burst: uint32(l.Burst)}
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

func (t takeDoor) giveBack(ctx context.Context, descriptors []asked, takenAt []int64) error {
	return t.back(ctx, &ratelimitv1.GiveBackRequest{Take: takeOf(descriptors), TakenAt: takenAt})
}
