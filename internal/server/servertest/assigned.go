package servertest

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/server"
)

// PlannedLimits have a rule with plans, and others that an assignment may change.
const PlannedLimits = `
domain: api
descriptors:
  - key: tenant
    plans:
      free: {name: hour, requests: 2, period: 1h, algorithm: fixed_window}
      pro:
        - {name: hour, requests: 5, period: 1h, algorithm: fixed_window}
        - {name: second, requests: 4, period: 1s, algorithm: fixed_window}
      internal: {unlimited: true}
    plan: free
    descriptors:
      - {key: route, plans: {free: {requests: 1, period: 1h}, pro: {requests: 9, period: 1h}}}
  - {key: user, rate_limit: {name: n, requests: 3, period: 1h, algorithm: fixed_window}}
  - {key: trial, shadow_mode: true, rate_limit: {requests: 1, period: 1h}}
  - {key: tokens, rate_limit: {unit: hour, requests_per_unit: 21}}
`

// Assigned is a server with the table of its assignments.
type Assigned struct {
	*assign.Table
	Daemon *Daemon
}

// StartAssigned runs a server to which a test assigns.
func StartAssigned(t *testing.T, limits string, change ...func(*server.Options)) Assigned {
	a := Assigned{Table: assign.NewTable()}
	a.Daemon = Start(t, limits, append(change, func(o *server.Options) { o.Assigned = a.Table })...)
	return a
}

// Says assigns terms to a subject such as "tenant=acme,route=/", and nothing else.
func (a Assigned) Says(subject string, terms assign.Terms, until ...time.Time) {
	a.Daemon.T.Helper()
	r := Taking(subject)
	s := &assign.Assignment{Subject: assign.Subject{Domain: "api"}}
	for _, e := range r.Descriptors[0].Entries {
		s.Entries = append(s.Entries, bucket.Entry{Key: e.Key, Value: e.Value})
	}
	if len(until) == 0 {
		s.Base.Terms = terms
	} else {
		s.Layers = []assign.Layer{{Terms: terms, Until: until[0].UnixMicro()}}
	}
	if err := s.Check(); err != nil {
		a.Daemon.T.Fatal(err)
	}
	a.Put(s)
}
