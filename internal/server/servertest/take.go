package servertest

import (
	"context"
	"fmt"
	"strings"

	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// API returns a client of the daemon's own API.
func (d *Daemon) API() ratelimitv1.RateLimitServiceClient {
	return ratelimitv1.NewRateLimitServiceClient(d.Conn)
}

// Taking makes a request about descriptors such as "user=alice,plan=free". A
// cost may follow a colon, "user=alice:3"; it is 1 otherwise.
func Taking(descriptors ...string) *ratelimitv1.TakeRequest {
	r := &ratelimitv1.TakeRequest{Domain: "api"}
	for _, text := range descriptors {
		text, cost, hasCost := strings.Cut(text, ":")
		d := &ratelimitv1.Descriptor{}
		for _, part := range strings.Split(text, ",") {
			k, v, _ := strings.Cut(part, "=")
			d.Entries = append(d.Entries, &ratelimitv1.Entry{Key: k, Value: v})
		}
		if hasCost {
			d.Cost = new(uint64)
			if _, err := fmt.Sscan(cost, d.Cost); err != nil {
				panic(err)
			}
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

// Take takes from limits of the domain api. It fails the test if there is no answer.
func (d *Daemon) Take(descriptors ...string) *ratelimitv1.TakeResponse {
	d.T.Helper()
	return d.SendTake(Taking(descriptors...))
}

// SendTake sends a take. It fails the test if there is no answer.
func (d *Daemon) SendTake(r *ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse {
	d.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	response, err := d.API().Take(ctx, r)
	if err != nil {
		d.T.Fatal(err)
	}
	return response
}

// GiveBack gives back what a request took.
func (d *Daemon) GiveBack(r *ratelimitv1.TakeRequest, taken *ratelimitv1.TakeResponse) error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	_, err := d.API().GiveBack(ctx, GivingBack(r, taken))
	return err
}

// GivingBack makes the request that gives back what a request took.
func GivingBack(r *ratelimitv1.TakeRequest, taken *ratelimitv1.TakeResponse) *ratelimitv1.GiveBackRequest {
	back := &ratelimitv1.GiveBackRequest{Take: r}
	for _, l := range taken.GetLimits() {
		back.TakenAt = append(back.TakenAt, l.GetTakenAt())
		back.TakenBy = append(back.TakenBy, l.GetTakenBy())
	}
	return back
}

// Settling makes the request that settles an ID. The costs of the descriptors, as in
// Taking, are what was used.
func Settling(id string, descriptors ...string) *ratelimitv1.SettleRequest {
	return &ratelimitv1.SettleRequest{Domain: "api", Id: id, Descriptors: Taking(descriptors...).GetDescriptors()}
}

// TakeAs takes like Take, with an ID.
func (d *Daemon) TakeAs(id string, descriptors ...string) *ratelimitv1.TakeResponse {
	d.T.Helper()
	r := Taking(descriptors...)
	r.Id = id
	return d.SendTake(r)
}

// Settle settles an ID. It fails the test if there is no answer.
func (d *Daemon) Settle(id string, descriptors ...string) *ratelimitv1.SettleResponse {
	d.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	response, err := d.API().Settle(ctx, Settling(id, descriptors...))
	if err != nil {
		d.T.Fatal(err)
	}
	return response
}

// Stream opens a TakeStream that ends with the test.
func (d *Daemon) Stream() ratelimitv1.RateLimitService_TakeStreamClient {
	d.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	d.T.Cleanup(cancel)
	s, err := d.API().TakeStream(ctx)
	if err != nil {
		d.T.Fatal(err)
	}
	return s
}

// Numbered makes a message of a stream, with takes that are numbered from a number on.
func Numbered(from uint64, takes ...*ratelimitv1.TakeRequest) *ratelimitv1.TakeStreamRequest {
	r := new(ratelimitv1.TakeStreamRequest)
	for i, take := range takes {
		r.Takes = append(r.Takes, &ratelimitv1.NumberedTake{Number: from + uint64(i), Take: take})
	}
	return r
}
