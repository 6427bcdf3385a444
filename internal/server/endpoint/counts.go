package endpoint

import (
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// answered are the codes that requests are answered with. Any other is counted
// as Unknown, the first.
var answered = [...]codes.Code{
	codes.Unknown, codes.OK, codes.FailedPrecondition, codes.Canceled, codes.DeadlineExceeded, codes.Internal,
	codes.InvalidArgument, codes.PermissionDenied, codes.ResourceExhausted, codes.Unavailable,
}

// ErrorCounts count requests that failed: those that the store did not decide,
// although their callers waited, and those that could not be answered for another
// reason.
type ErrorCounts struct{ Store, Other prometheus.Counter }

// add counts an error that told became.
func (c *ErrorCounts) add(err, told error) {
	if _, ok := status.FromError(err); ok {
		c.Other.Inc()
	} else if status.Code(told) != codes.Canceled {
		c.Store.Inc()
	}
}

// RequestCounts are the counters of one endpoint, by code.
type RequestCounts [codes.Unauthenticated + 1]prometheus.Counter

// NewRequestCounts returns the counters of an endpoint, of a metric with the
// labels api and code. All begin at 0, so that the first failure is an increase.
func NewRequestCounts(requests *prometheus.CounterVec, api string) *RequestCounts {
	var r RequestCounts
	for _, code := range answered {
		r[code] = requests.WithLabelValues(api, code.String())
	}
	return &r
}

// Add counts a request that was answered with a code.
func (r *RequestCounts) Add(code codes.Code) {
	if int(code) >= len(r) || r[code] == nil {
		code = codes.Unknown
	}
	r[code].Inc()
}
