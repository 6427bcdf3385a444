package takeapi_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// returningStore decides the second hit of each take without its state, and
// keeps the give-backs.
type returningStore struct {
	servertest.FakeStore
	returned []string
}

func (s *returningStore) Take(_ context.Context, _ []bucket.Hit, decisions []bucket.Decision) error {
	for i := range decisions {
		decisions[i] = bucket.Decision{At: int64(100 + i)}
		if i == 1 {
			decisions[i].Degraded, decisions[i].Share = true, math.MaxUint32
		}
	}
	return nil
}

func (s *returningStore) GiveBack(_ context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	for i := range hits {
		d := decisions[i]
		s.returned = append(s.returned, fmt.Sprintf("%s at %d, degraded %v, share %d", hits[i].Key, d.At, d.Degraded, d.Share))
	}
	return nil
}

// A give-back says which of its takes another decided in the store's place.
func TestDegradedTakeIsGivenBackAsDegraded(t *testing.T) {
	t.Parallel()
	store := new(returningStore)
	d := servertest.Start(t, servertest.TakeLimits, servertest.On(store))
	request := servertest.Taking("gcra=x", "gcra=y", "gcra=z")
	taken := d.SendTake(request)
	if err := d.GiveBack(request, taken); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"api|gcra=x#gcra:n at 100, degraded false, share 0",
		"api|gcra=z#gcra:n at 102, degraded false, share 0",
		"api|gcra=y#gcra:n at 101, degraded true, share 4294967295",
	}
	if !slices.Equal(store.returned, want) {
		t.Errorf("given back: %q, want %q", store.returned, want)
	}
	// A take by the store has no share, and the number of a share has 32 bits.
	for i, other := range []uint64{1, 1 << 32} {
		t.Run(fmt.Sprint("limit ", i), func(t *testing.T) {
			taken := proto.Clone(taken).(*ratelimitv1.TakeResponse)
			taken.Limits[i].TakenBy ^= other
			if err := d.GiveBack(request, taken); status.Code(err) != codes.FailedPrecondition {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestWrongGiveBacksAreRefused(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.TakeLimits)
	noPeriod := servertest.Taking("gcra=x")
	noPeriod.Descriptors[0].Numbers = &ratelimitv1.Numbers{Requests: 1}
	for i, c := range []struct {
		back *ratelimitv1.GiveBackRequest
		code codes.Code
		want string
	}{
		{&ratelimitv1.GiveBackRequest{}, codes.InvalidArgument, "domain is empty"},
		{&ratelimitv1.GiveBackRequest{Take: noPeriod, TakenAt: []int64{1}}, codes.InvalidArgument, "descriptors[0].numbers.period: found 0s"},
		{&ratelimitv1.GiveBackRequest{Take: servertest.Taking("several=x"), TakenAt: []int64{1}}, codes.FailedPrecondition, "the limits have changed"},
		{&ratelimitv1.GiveBackRequest{Take: servertest.Taking("gcra=x"), TakenAt: []int64{1, 2}}, codes.FailedPrecondition, "the limits have changed"},
		{&ratelimitv1.GiveBackRequest{Take: servertest.Taking("gcra=x"), TakenAt: []int64{1}, TakenBy: []uint64{1, 2}}, codes.InvalidArgument, "taken_by: found 2 beside 1 of taken_at; allowed: as many, or none"},
		{&ratelimitv1.GiveBackRequest{Take: servertest.Taking("gcra=x"), TakenAt: []int64{1}, TakenBy: []uint64{2}}, codes.FailedPrecondition, "the limits have changed"},
		{&ratelimitv1.GiveBackRequest{Take: servertest.Taking("gcra=x"), TakenAt: []int64{0}, TakenBy: []uint64{2}}, codes.OK, ""},
		{&ratelimitv1.GiveBackRequest{Take: servertest.Taking("gcra=x"), TakenAt: []int64{1}, TakenBy: []uint64{0}}, codes.OK, ""},
		{&ratelimitv1.GiveBackRequest{Take: servertest.Taking("gcra=x"), TakenAt: []int64{math.MinInt64}}, codes.InvalidArgument, "taken_at[0]: found -9223372036854775808"},
		{&ratelimitv1.GiveBackRequest{Take: servertest.Taking("gcra=x"), TakenAt: []int64{math.MaxInt64}}, codes.InvalidArgument, "taken_at[0]: found"},
		{&ratelimitv1.GiveBackRequest{Take: servertest.Taking("gcra=x"), TakenAt: []int64{1}}, codes.OK, ""},
		{&ratelimitv1.GiveBackRequest{Take: servertest.Taking("gcra=x"), TakenAt: []int64{-1}}, codes.OK, ""},
	} {
		t.Run(fmt.Sprint(c.code, " ", i), func(t *testing.T) {
			_, err := d.API().GiveBack(t.Context(), c.back)
			if status.Code(err) != c.code || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("%v: got %v, want %v %q", c.back, err, c.code, c.want)
			}
		})
	}
	off := servertest.Start(t, servertest.TakeLimits, func(o *server.Options) { o.Requests.Refunds = false })
	request := servertest.Taking("gcra=x")
	if err := off.GiveBack(request, off.SendTake(request)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("where refunds are off, got %v", err)
	}
	var refused atomic.Bool
	failing := servertest.Start(t, servertest.TakeLimits, func(o *server.Options) {
		o.Store = failingReturns{o.Store}
		o.Health.Refuses = func() error {
			if refused.Load() {
				return errors.New("it disagrees with the others")
			}
			return nil
		}
	})
	taken := failing.SendTake(request)
	for _, want := range []string{"the store is away", "it disagrees with the others"} {
		if err := failing.GiveBack(request, taken); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		refused.Store(true)
	}
}

// failingReturns takes, but cannot give back.
type failingReturns struct{ bucket.Store }

func (failingReturns) GiveBack(context.Context, []bucket.Hit, []bucket.Decision) error {
	return errors.New("the store is away")
}
