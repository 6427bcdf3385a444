package server_test

import (
	"context"
	"fmt"
	"strings"

	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

const takeLimits = `
domain: api
descriptors:
  - {key: token_bucket, rate_limit: {name: n, algorithm: token_bucket, requests: 10, period: 10s, burst: 4}}
  - {key: gcra, rate_limit: {name: n, algorithm: gcra, requests: 10, period: 10s, burst: 4}}
  - {key: leaky_bucket, rate_limit: {name: n, algorithm: leaky_bucket, requests: 10, period: 10s, burst: 4}}
  - {key: fixed_window, rate_limit: {name: n, algorithm: fixed_window, requests: 4, period: 10s}}
  - {key: sliding_window, rate_limit: {name: n, algorithm: sliding_window, requests: 4, period: 10s}}
  - {key: sliding_log, rate_limit: {name: n, algorithm: sliding_log, requests: 4, period: 10s}}
  - {key: closed, rate_limit: {requests: 0, period: 1s}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: shadow, shadow_mode: true, rate_limit: {name: s, algorithm: fixed_window, requests: 1, period: 1h}}
  - {key: paid, rate_limit: {algorithm: fixed_window, requests: 4, period: 1h, postpaid: true}}
  - key: several
    rate_limits:
      - {name: second, algorithm: fixed_window, requests: 2, period: 1s}
      - {name: hour, algorithm: fixed_window, requests: 3, period: 1h}
`

func (d *daemon) api() ratelimitv1.RateLimitServiceClient {
	return ratelimitv1.NewRateLimitServiceClient(d.conn)
}

// taking makes a request about descriptors such as "user=alice,plan=free". A
// cost may follow a colon, "user=alice:3"; it is 1 otherwise.
func taking(descriptors ...string) *ratelimitv1.TakeRequest {
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

func (d *daemon) take(descriptors ...string) *ratelimitv1.TakeResponse {
	d.t.Helper()
	return d.sendTake(taking(descriptors...))
}

func (d *daemon) sendTake(r *ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	response, err := d.api().Take(ctx, r)
	if err != nil {
		d.t.Fatal(err)
	}
	return response
}

func (d *daemon) giveBack(r *ratelimitv1.TakeRequest, taken *ratelimitv1.TakeResponse) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := d.api().GiveBack(ctx, givingBack(r, taken))
	return err
}

func givingBack(r *ratelimitv1.TakeRequest, taken *ratelimitv1.TakeResponse) *ratelimitv1.GiveBackRequest {
	back := &ratelimitv1.GiveBackRequest{Take: r}
	for _, l := range taken.GetLimits() {
		back.TakenAt = append(back.TakenAt, l.GetTakenAt())
		back.TakenBy = append(back.TakenBy, l.GetTakenBy())
	}
	return back
}
