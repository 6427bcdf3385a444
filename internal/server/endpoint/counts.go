package endpoint

import (
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/decide"
)

// answered are the codes with which requests are answered. Any other is counted as
// Unknown, the first.
var answered = [...]codes.Code{
	codes.Unknown, codes.OK, codes.FailedPrecondition, codes.Canceled, codes.DeadlineExceeded, codes.Internal,
	codes.InvalidArgument, codes.PermissionDenied, codes.ResourceExhausted, codes.Unavailable, codes.Unauthenticated,
}

// ErrorCounts count requests that failed: those that the store did not decide although
// their callers still waited, and those that could not be answered for another reason.
type ErrorCounts struct{ Store, Other prometheus.Counter }

// add counts the error of a response; isStores says whether it is the store's.
func (c *ErrorCounts) add(err error, isStores bool) {
	switch {
	case !isStores:
		c.Other.Inc()
	case status.Code(err) != codes.Canceled:
		c.Store.Inc()
	}
}

// Result is the result of a request that was answered with OK.
type Result uint8

// Results.
const (
	ResultAllowed Result = iota
	ResultDenied
	// ResultPeeked is the result of a request that passes and took nothing, since it
	// asked for nothing.
	ResultPeeked
	ResultGivenBack
	// ResultSettled is that of a settlement, whether it found something or not.
	ResultSettled
	results
)

var resultNames = [results]string{"allowed", "denied", "peeked", "given_back", "settled"}

// resultOf returns the result of a decided call.
func resultOf(c *decide.Call) Result {
	switch {
	case c.Denied:
		return ResultDenied
	case c.IsPeek():
		return ResultPeeked
	}
	return ResultAllowed
}

// RequestCounts are the counters of one endpoint.
type RequestCounts struct {
	answered [results]prometheus.Counter
	failed   [codes.Unauthenticated + 1]prometheus.Counter
}

// NewRequestCounts returns the counters of an endpoint, of a metric with the
// labels api, code and outcome. All begin at 0, so that the first failure is an
// increase.
func NewRequestCounts(requests *prometheus.CounterVec, api string) *RequestCounts {
	var r RequestCounts
	for result, name := range resultNames {
		r.answered[result] = requests.WithLabelValues(api, codes.OK.String(), name)
	}
	for _, code := range answered {
		if code != codes.OK {
			r.failed[code] = requests.WithLabelValues(api, code.String(), "error")
		}
	}
	return &r
}

// Answered counts n requests that were answered with OK.
func (r *RequestCounts) Answered(result Result, n int) { r.answered[result].Add(float64(n)) }

// Failed counts a request that was answered with another code.
func (r *RequestCounts) Failed(code codes.Code) {
	if int(code) >= len(r.failed) || r.failed[code] == nil {
		code = codes.Unknown
	}
	r.failed[code].Inc()
}

// DurationOpts returns the options of a histogram of how long requests took, in seconds. Its
// native buckets each end at most 10% above the one before.
func DurationOpts(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help,
		Buckets:                      []float64{25e-6, 50e-6, 100e-6, 250e-6, 500e-6, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		NativeHistogramBucketFactor:  1.1,
		NativeHistogramZeroThreshold: 1e-6,
	}
}
