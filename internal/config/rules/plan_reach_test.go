package rules_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
)

// A plan counts only where a request reaches its rule.
func TestPlansOfRulesThatNoRequestReaches(t *testing.T) {
	t.Parallel()
	const hidden = `domain: d
descriptors:
- key: tenant
  descriptors:
  - {key: path, value: "*", rate_limit: {requests: 1, period: 1s}}
  - key: path
    value: /api/*
    plans: {pro: {requests: 1, period: 1s}}
`
	r, err := limitstest.Load(t, hidden)
	if err != nil {
		t.Fatal(err)
	}
	if has, names := r.Domain("d").HasPlan(limitstest.Entries("tenant=x"), "pro"); has || len(names) > 0 {
		t.Errorf("there is a plan: %t, of the names %v; no request reaches it", has, names)
	}
}
