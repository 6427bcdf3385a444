package replay_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/replay"
)

// A replay decides all that a daemon decided in memory, byte for byte.
func TestReplayDecidesWhatWasDecided(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		r := restartingTrace(t, seed, 1500)
		report := replayed(t, replay.Options{Warn: func(s string) { t.Error(s) }}, r.log)
		if k := report.Comparison; k.Different > 0 || k.Equal < 1200 {
			t.Fatalf("seed %d: %d equal, %d different: %+v", seed, k.Equal, k.Different, k.First)
		}
	}
}

// The settings that a log says decide other limits too, and what is given goes
// before them.
func TestSettingsOfALogAreTaken(t *testing.T) {
	t.Parallel()
	limits := limitOf("fixed_window", 1, 0)
	r := newRecorder(t, limits)
	r.restart(decisionlog.Settings{ShadowMode: true})
	r.take(asking("user=a", 2))
	r.after(10)
	r.restart(decisionlog.Settings{DenyUnmatched: true})
	r.take(asking("nobody=a", 1))
	r.take(asking("user=a", 2))
	for _, c := range []struct {
		name   string
		change func(*decisionlog.Settings)
		denied uint64
	}{
		{"as the log says", nil, 2},
		{"none in shadow", func(s *decisionlog.Settings) { s.ShadowMode = false }, 3},
		{"all in shadow", func(s *decisionlog.Settings) { s.ShadowMode = true }, 0},
		{"unmatched pass", func(s *decisionlog.Settings) { s.DenyUnmatched = false }, 1},
	} {
		o := replay.Options{Limits: rulesOf(t, limits), Settings: c.change}
		if got := replayed(t, o, r.log).DeniedAfter; got != c.denied {
			t.Errorf("%s: %d are denied, want %d", c.name, got, c.denied)
		}
		o.Against = o.Limits
		if got := replayed(t, o, r.log).DeniedBefore; got != c.denied {
			t.Errorf("%s: %d were denied by the others, want %d", c.name, got, c.denied)
		}
	}
}

// How far a clock may have stepped is what the log says.
func TestClockSkewOfALogIsTaken(t *testing.T) {
	t.Parallel()
	limits := limitOf("fixed_window", 1, 0)
	for skew, denied := range map[time.Duration]uint64{0: 1, 10 * time.Second: 1, time.Minute: 2} {
		r := newRecorder(t, limits)
		r.restart(decisionlog.Settings{MaxClockSkew: skew})
		for _, after := range []int64{30e6, -30e6, 2e6} { // the clock is set back by 30 s
			r.after(after)
			r.take(asking("user=a", 1))
		}
		l, err := replay.NewLog("test.log", io.NopCloser(bytes.NewReader(r.log)), replay.Decisions(), 1)
		if err != nil {
			t.Fatal(err)
		}
		again, err := replay.New(replay.Options{Limits: rulesOf(t, limits)})
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Run(l); err != nil {
			t.Fatal(err)
		}
		if got := again.Report().DeniedAfter; got != denied {
			t.Errorf("%s: %d are denied, want %d", skew, got, denied)
		}
	}
}

// A change of one number in the log is found.
func TestReplayFindsADifference(t *testing.T) {
	t.Parallel()
	r := randomTrace(t, 1, 500)
	lines := bytes.Split(r.log, []byte("\n"))
	changed := -1
	for i, line := range lines {
		if j := bytes.Index(line, []byte(`"remaining":2`)); j > 0 && !bytes.Contains(line, []byte("give_back")) {
			line[j+len(`"remaining":`)] = '3'
			changed = i
			break
		}
	}
	k := replayed(t, replay.Options{}, bytes.Join(lines, []byte("\n"))).Comparison
	if k.Different != 1 || len(k.First) != 1 || k.First[0].Line != int64(changed+1) || k.First[0].Recorded[0] != '3' {
		t.Errorf("line %d was changed: %+v", changed+1, k)
	}
}
