package endpoint_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// envoyWay asks in Envoy's messages.
type envoyWay struct {
	send func(ctx context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error)
}

func openEnvoy(d *servertest.Daemon) way {
	return envoyWay{func(ctx context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
		return d.RLS.ShouldRateLimit(ctx, r)
	}}
}

func openJSON(d *servertest.Daemon) way {
	return envoyWay{func(ctx context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
		response := new(rlsv3.RateLimitResponse)
		return response, postMessage(d, ctx, "/json", r, response)
	}}
}

// postMessage posts a message and reads the answer.
func postMessage(d *servertest.Daemon, ctx context.Context, path string, request, response proto.Message) error {
	body, err := protojson.Marshal(request)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.Server.Address("http")+path, strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	answer, err := d.Client.Do(r)
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

func (e envoyWay) take(ctx context.Context, descriptors []asked) ([]bucket.Decision, error) {
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

func (e envoyWay) giveBack(context.Context, []asked, []int64) error {
	return errors.New("Envoy's RPC has no give-back")
}
