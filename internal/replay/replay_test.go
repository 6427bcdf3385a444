package replay_test

import (
	"bytes"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/replay"
)

// A replay decides all that a daemon decided in memory, byte for byte.
func TestReplayDecidesWhatWasDecided(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		r := randomTrace(t, seed, 1500)
		report := replayed(t, replay.Options{Warn: func(s string) { t.Error(s) }}, r.log)
		if k := report.Comparison; k.Different > 0 || k.Equal < 1200 {
			t.Fatalf("seed %d: %d equal, %d different: %+v", seed, k.Equal, k.Different, k.First)
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
