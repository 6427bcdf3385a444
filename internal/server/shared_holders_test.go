package server

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

// Nearly nothing but renewals of what was just taken is warned of, once an hour.
func TestSharedHoldersAreWarnedOf(t *testing.T) {
	set, err := limitstest.Load(t, limitstest.Descriptor("rate_limit: {name: flight, algorithm: concurrency, requests: 5, hold: 1m}"))
	if err != nil {
		t.Fatal(err)
	}
	counts := set.Domains()[0].Rules()[0].Counts.Limit("flight", 0)
	log := new(asynctest.Buffer)
	shared := sharedHolders{log: slog.New(slog.NewTextHandler(log, nil))}
	now := time.Duration(0)
	take := func(renewals, others int) {
		for range renewals + others {
			counts.Add(tally.LimitAllowed, 1)
		}
		counts.Holders().RenewedSoon.Add(uint64(renewals))
	}
	for i, step := range []struct {
		after            time.Duration
		renewals, others int
		warnings         int // in all
	}{
		{0, 99, 0, 0},
		{time.Second, 1, 0, 1},
		{time.Second, 10_000, 0, 1}, // again too soon
		{time.Hour, 0, 0, 2},
		{time.Hour, 0, 1000, 2},
		{time.Hour, 899, 101, 2},
		{2 * time.Hour, 0, 0, 2},
		{time.Second, 900, 100, 3},
	} {
		now += step.after
		take(step.renewals, step.others)
		shared.look(set, now)
		if n := strings.Count(log.String(), "requests share a holder"); n != step.warnings {
			t.Errorf("step %d: %d warnings, want %d:\n%s", i, n, step.warnings, log)
		}
	}
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "rule=k limit=flight renewed=100 takes=100") {
		t.Errorf("the log is %s", log)
	}
}
