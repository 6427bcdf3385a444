package buckettest

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// charging is a way to charge limits.
type charging struct {
	name string
	of   func(testing.TB, bucket.Spec) *bucket.Limit
}

// chargings are all ways to charge limits.
var chargings = []charging{
	{"admitted", NewLimit},
	{"use", postpaidLimit},
	{"reported", reportedLimit},
}

func postpaidLimit(tb testing.TB, s bucket.Spec) *bucket.Limit {
	tb.Helper()
	s.Postpaid = bucket.PostpaidAlways
	return NewLimit(tb, s)
}

func reportedLimit(tb testing.TB, s bucket.Spec) *bucket.Limit {
	tb.Helper()
	s.Postpaid = bucket.PostpaidAuto
	return NewLimit(tb, s).Reported()
}
