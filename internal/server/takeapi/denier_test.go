package takeapi_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

const quotaLimits = `
domain: api
descriptors:
  - {key: user, rate_limit: {algorithm: fixed_window, requests: 2, period: 1m}}
  - {key: hour, quota_mode: true, rate_limit: {algorithm: fixed_window, requests: 1, period: 1h}}
  - {key: day, quota_mode: true, rate_limit: {algorithm: fixed_window, requests: 1, period: 1d}}
  - {key: wide, quota_mode: true, rate_limit: {algorithm: fixed_window, requests: 100, period: 1d}}
  - key: pair
    quota_mode: true
    rate_limits:
      - {name: most, algorithm: fixed_window, requests: 100, period: 1d}
      - {name: few, algorithm: fixed_window, requests: 1, period: 1h}
`

// A quota that is over denies nothing while another has room. When all are
// over, the answer names the first to come back.
func TestDeniedByNamesTheFirstQuotaToComeBack(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, quotaLimits)
	d.Take("user=x", "hour=x", "day=x", "wide=x")
	// Both small quotas are over; the wide one is not.
	if r := d.Take("day=x", "user=x", "hour=x", "wide=x"); !r.GetAllowed() || r.DeniedBy != nil {
		t.Fatalf("got %v", r)
	}
	r := d.Take("day=x", "user=x", "hour=x", "wide=x")
	if r.GetAllowed() || r.GetDeniedBy() != 1 || r.GetRetryAfter().AsDuration() != r.GetLimits()[1].GetRetryAfter().AsDuration() {
		t.Errorf("got %v, want it denied by the limit of the user", r)
	}
	r = d.Take("day=x", "hour=x", "user=y")
	if r.GetAllowed() || r.GetDeniedBy() != 1 || r.GetRetryAfter().AsDuration() != r.GetLimits()[1].GetRetryAfter().AsDuration() {
		t.Errorf("got %v, want it denied by the hour's, which comes back first", r)
	}
	// A quota has two limits: the one that is over is named.
	d.Take("pair=x")
	if r := d.Take("day=x", "pair=x"); r.GetAllowed() || r.GetDeniedBy() != 2 || r.GetLimits()[2].GetName() != "few" {
		t.Errorf("got %v, want it denied by the second limit of the pair", r)
	}
	// Several come back together: the first is named.
	d.Take("day=y")
	if r := d.Take("day=x", "day=y"); r.GetAllowed() || r.DeniedBy == nil || r.GetDeniedBy() != 0 {
		t.Errorf("got %v, want it denied by the first of two days", r)
	}
}
