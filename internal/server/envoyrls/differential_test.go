package envoyrls_test

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// differentialSeed seeds the worlds. Each world derives its own seed, so that
// it can be run alone.
const differentialSeed = 20260101

// lanes is the number of worlds that run at once.
const lanes = 4

// TestAnswersAreThoseOfTheModel asks a server and the model the same.
func TestAnswersAreThoseOfTheModel(t *testing.T) {
	t.Parallel()
	compareWorlds(t, soaktest.Long(15, 2500), 410, servertest.Memory, fromFiles)
}

// opener opens a world's own store.
type opener func(testing.TB, *asynctest.Clock) bucket.Store

// source has the limits of a world loaded.
type source func(*testing.T, *world) *rules.Live

// compareWorlds compares answers in many worlds.
func compareWorlds(t *testing.T, worlds, requests int, open opener, load source) {
	for lane := range lanes {
		t.Run(fmt.Sprintf("lane %d", lane), func(t *testing.T) {
			t.Parallel()
			for n := lane; n < worlds; n += lanes {
				d := draw{rand.New(rand.NewPCG(differentialSeed, uint64(n)))}
				w := d.world()
				steps := d.stream(w, requests)
				if at, _ := compare(t, w, steps, open, load); at >= 0 {
					steps = shrink(t, w, steps[:at+1], open, load)
					_, text := compare(t, w, steps, open, load)
					t.Errorf("world %d: %s", n, text)
					return
				}
			}
		})
	}
}

// compare runs a stream from its beginning. It returns the first step with
// different answers and a description, or -1.
func compare(t *testing.T, w *world, steps []ask, open opener, load source) (at int, text string) {
	t.Run("", func(t *testing.T) {
		at, text = compareOnce(startWorld(t, w, open, load), w, steps)
	})
	return at, text
}

func compareOnce(d *servertest.Daemon, w *world, steps []ask) (int, string) {
	m := &model{modes: w.modes, domains: w.domains, counters: make(map[string]modelCounter)}
	begin := d.Clock.Time()
	for i, s := range steps {
		d.Clock.Set(begin.Add(s.at).UnixMicro())
		want, wantCode := m.answer(d.Clock.Micros(), s.request)
		got, err := d.Try(s.request)
		if status.Code(err) != wantCode || wantCode == codes.OK && !proto.Equal(got, want) {
			return i, fmt.Sprintf("%s\n%s\n got %v %s\nwant %v %s",
				w, showSteps(steps[:i+1]), err, oneLine(got), wantCode, oneLine(want))
		}
	}
	return -1, ""
}

// fromFiles loads limits files.
func fromFiles(t *testing.T, w *world) *rules.Live {
	dir := t.TempDir()
	for name, text := range w.files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	live := limitsfile.Options{MergeDomains: w.merge, Lenient: w.lenient}.NewLive(dir, slog.New(slog.DiscardHandler))
	if err := live.Reload(); err != nil {
		t.Fatalf("%s\n%v", w, err)
	}
	return live
}

// startWorld runs a server on the world's limits.
func startWorld(t *testing.T, w *world, open opener, load source) *servertest.Daemon {
	live, c := load(t, w), servertest.NewClock()
	d := servertest.Start(t, "domain: unused\n", func(o *server.Options) {
		o.Live = live
		o.Store = open(t, c)
		o.Modes.Shadow, o.Modes.Quota = w.modes.shadow, w.modes.quota
		o.Responses.DynamicMetadata = w.modes.metadata
		if w.modes.headers {
			o.Responses.Headers = settings.Headers{Style: "ratelimit", Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"}
		}
	})
	d.Clock = c
	return d
}

// shrink leaves out steps, many at a time and then fewer, as long as the last
// answer still differs.
func shrink(t *testing.T, w *world, steps []ask, open opener, load source) []ask {
	deadline := time.Now().Add(servertest.Patience)
	for n := len(steps) / 2; n > 0; n /= 2 {
		for from := 0; from+n < len(steps) && time.Now().Before(deadline); {
			fewer := slices.Delete(slices.Clone(steps), from, from+n)
			if at, _ := compare(t, w, fewer, open, load); at >= 0 {
				steps = fewer[:at+1]
			} else {
				from += n
			}
		}
	}
	return steps
}

// String shows the files and the settings.
func (w *world) String() string {
	text := fmt.Sprintf("modes %+v, merge %v, lenient %v", w.modes, w.merge, w.lenient)
	for _, name := range slices.Sorted(maps.Keys(w.files)) {
		text += fmt.Sprintf("\n== %s\n%s", name, w.files[name])
	}
	return text
}

func showSteps(steps []ask) string {
	var lines []string
	for _, s := range steps {
		lines = append(lines, fmt.Sprintf("%v %s", s.at, oneLine(s.request)))
	}
	return strings.Join(lines, "\n")
}

func oneLine(m proto.Message) string {
	if r, ok := m.(*rlsv3.RateLimitResponse); ok && r == nil {
		return "nothing"
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
