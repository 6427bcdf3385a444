package client_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/internal/daemontest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// The client writes and reads messages in their bytes. The server here has the
// generated code to read and write them.

func TestDaemonReadsWhatTheClientWrites(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	x := []client.Entry{client.E("user", "x")}
	user := []*ratelimitv1.Entry{{Key: "user", Value: "x"}}
	for name, test := range map[string]struct {
		asked []client.Descriptor
		want  []*ratelimitv1.Descriptor
	}{
		"no cost": {[]client.Descriptor{{Entries: x}}, []*ratelimitv1.Descriptor{{Entries: user}}},
		"a cost": {
			[]client.Descriptor{{Entries: x, Cost: 1 << 40}},
			[]*ratelimitv1.Descriptor{{Entries: user, Cost: new(uint64(1 << 40))}},
		},
		"a peek": {
			[]client.Descriptor{{Entries: x, Peek: true}},
			[]*ratelimitv1.Descriptor{{Entries: user, Cost: new(uint64(0))}},
		},
		"long and empty texts": {
			[]client.Descriptor{{Entries: []client.Entry{client.E("", long), client.E(long, "")}}},
			[]*ratelimitv1.Descriptor{{Entries: []*ratelimitv1.Entry{{Value: long}, {Key: long}}}},
		},
		"numbers of its own": {
			[]client.Descriptor{{Entries: x, Numbers: &client.Numbers{Requests: 500, Period: 90*time.Minute + 250*time.Millisecond, Burst: 7}}},
			[]*ratelimitv1.Descriptor{{Entries: user, Numbers: &ratelimitv1.Numbers{
				Requests: 500, Period: durationpb.New(90*time.Minute + 250*time.Millisecond), Burst: 7,
			}}},
		},
		"several descriptors": {
			[]client.Descriptor{{Entries: x, Cost: 2}, {Entries: []client.Entry{client.E("a", "b"), client.E("c", "d")}, Numbers: &client.Numbers{}}},
			[]*ratelimitv1.Descriptor{
				{Entries: user, Cost: new(uint64(2))},
				{Entries: []*ratelimitv1.Entry{{Key: "a", Value: "b"}, {Key: "c", Value: "d"}}, Numbers: &ratelimitv1.Numbers{Period: new(durationpb.Duration)}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := &ratelimitv1.TakeRequest{Domain: "api", Descriptors: test.want}
			var got []*ratelimitv1.TakeRequest
			s := new(daemontest.Script)
			s.OnStream = func(stream daemontest.Stream) error {
				for {
					m, err := stream.Recv()
					if err != nil {
						return nil
					}
					for _, n := range m.GetTakes() {
						got = append(got, n.GetTake())
					}
					if err := s.Allow(stream, m); err != nil {
						return err
					}
				}
			}
			c := connect(t, s.Serve(t))
			for range 2 {
				if _, err := c.Take(within(t), client.Request{Domain: "api", Descriptors: test.asked}); err != nil {
					t.Fatal(err)
				}
			}
			for _, take := range got {
				if !proto.Equal(take, want) {
					t.Errorf("found %v\nwant  %v", take, want)
				}
			}
			if len(got) != 2 {
				t.Errorf("%d takes came", len(got))
			}
		})
	}
}

func TestClientReadsWhatTheDaemonWrites(t *testing.T) {
	t.Parallel()
	d := func(n time.Duration) *durationpb.Duration { return durationpb.New(n) }
	taken := &ratelimitv1.Limit{
		DescriptorIndex: 1, Name: "short", Algorithm: ratelimitv1.Algorithm_ALGORITHM_LEAKY_BUCKET,
		Requests: 1<<52 - 1, Period: d(time.Hour + 5*time.Millisecond), Capacity: 1 << 52, Remaining: 1<<32 + 1, Allowed: true,
		ResetAfter: d(3 * time.Second), Wait: d(time.Millisecond), TakenAt: 1 << 50, Shadow: true, TakenBy: 1<<63 + 5,
	}
	denying := &ratelimitv1.Limit{Algorithm: ratelimitv1.Algorithm_ALGORITHM_GCRA, RetryAfter: d(1500 * time.Microsecond), TakenAt: 7, TakenBy: 9}
	response := &ratelimitv1.TakeResponse{
		Limits: []*ratelimitv1.Limit{taken, denying, {}}, DeniedBy: new(uint32(1)), RetryAfter: d(2 * time.Second), Degraded: true,
	}
	var back *ratelimitv1.GiveBackRequest
	s := &daemontest.Script{
		OnTake: func(context.Context, *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
			return response, nil
		},
		OnGiveBack: func(r *ratelimitv1.GiveBackRequest) (*ratelimitv1.GiveBackResponse, error) {
			back = r
			return new(ratelimitv1.GiveBackResponse), nil
		},
	}
	c := connect(t, s.Serve(t))
	got, err := c.Take(within(t), one("api", "user", "x"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Allowed || got.DeniedBy != 1 || got.RetryAfter != 2*time.Second || !got.Degraded || len(got.Limits) != 3 {
		t.Fatalf("found %+v", got)
	}
	if l := got.Limits[0]; l.Descriptor != 1 || l.Name != "short" || l.Algorithm != client.LeakyBucket || l.Requests != 1<<52-1 ||
		l.Period != time.Hour+5*time.Millisecond || l.Capacity != 1<<52 || l.Remaining != 1<<32+1 || !l.Allowed || l.RetryAfter != 0 ||
		l.ResetAfter != 3*time.Second || l.Wait != time.Millisecond || !l.Shadow {
		t.Errorf("found %+v", l)
	}
	if l := got.Limits[1]; l.Allowed || l.RetryAfter != 1500*time.Microsecond || l.Algorithm != client.GCRA || l.Descriptor != 0 {
		t.Errorf("found %+v", l)
	}
	if l := got.Limits[2]; l.Allowed || l.RetryAfter != client.Never {
		t.Errorf("a denial without an end: found %+v", l)
	}
	if err := c.GiveBack(within(t), got); err != nil {
		t.Fatal(err)
	}
	want := &ratelimitv1.GiveBackRequest{
		Take:    &ratelimitv1.TakeRequest{Domain: "api", Descriptors: []*ratelimitv1.Descriptor{{Entries: []*ratelimitv1.Entry{{Key: "user", Value: "x"}}}}},
		TakenAt: []int64{1 << 50, 7, 0}, TakenBy: []uint64{1<<63 + 5, 9, 0},
	}
	if !proto.Equal(back, want) {
		t.Errorf("found %v\nwant  %v", back, want)
	}
}
