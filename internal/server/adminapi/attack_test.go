package adminapi_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// etagIn returns the last version that an answer names.
func etagIn(body string) string {
	_, rest, _ := strings.Cut(body[strings.LastIndex(body, `"etag":`)+1:], `:"`)
	etag, _, _ := strings.Cut(rest, `"`)
	return etag
}

// Many who change what they have read, at once: of each version one wins, and all others
// learn that they have not.
func TestOneOfManyChangesEachVersion(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	const at, clients, rounds = "/assignment?domain=api&entry=account=x", 64, 10
	p := d.AskAdmin("PUT", at, "run", `{"plan":"free"}`)
	for round := range rounds {
		etag := etagIn(p.Body)
		var won, lost atomic.Int32
		var all sync.WaitGroup
		for client := range clients {
			all.Go(func() {
				body := fmt.Sprintf(`{"plan":"pro","reason":"%d of %d"}`, client, round)
				switch answer := d.AskAdmin("PUT", at+"&if_match="+etag, "run", body); answer.Code {
				case 200:
					won.Add(1)
				case 412, 429: // 32 are answered at a time
					lost.Add(1)
				default:
					t.Errorf("%d %s", answer.Code, answer.Body)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 || lost.Load() != clients-1 {
			t.Fatalf("round %d: %d won, %d lost", round, won.Load(), lost.Load())
		}
		p = d.AskAdmin("GET", at, "run", "")
	}
	if n := len(f.Recorded()); n != 1+rounds {
		t.Errorf("there are %d records", n)
	}
}

// blockedBy reports whether a block denies a take.
func blockedBy(r *ratelimitv1.TakeResponse) bool {
	return !r.GetAllowed() && r.GetLimits()[0].GetName() == "blocked"
}

// At its end an assignment holds no more, whatever the clock does then, until it is
// swept; versions stay those of what is in force.
func TestAClockThatJumpsAtTheEndOfAnAssignment(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	const at = "/assignment?domain=api&entry=user=x"
	end := d.Clock.Time().Add(time.Hour)
	p := d.AskAdmin("PATCH", at, "run", fmt.Sprintf(`{"blocked":true,"until":%q}`, end.UTC().Format(time.RFC3339Nano)))
	if p.Code != 201 {
		t.Fatalf("%d %s", p.Code, p.Body)
	}
	etag := etagIn(p.Body)
	for _, c := range []struct {
		name    string
		moment  time.Time
		blocked bool
	}{
		{"a microsecond before", end.Add(-time.Microsecond), true},
		{"at the end", end, false},
		{"a year later", end.Add(366 * 24 * time.Hour), false},
		{"back before it", end.Add(-time.Second), true},
		{"in 1970", time.UnixMicro(1), true},
		{"at the end again", end, false},
	} {
		d.Clock.Set(c.moment.UnixMicro())
		if got := blockedBy(d.Take("user=x")); got != c.blocked {
			t.Errorf("%s: blocked %t", c.name, got)
		}
		want := 404
		if c.blocked {
			want = 200
		}
		if p := d.AskAdmin("GET", at, "view", ""); p.Code != want {
			t.Errorf("%s: %d %s", c.name, p.Code, p.Body)
		}
	}
	// At the end nothing is in force, so the old version is not either.
	if p := d.AskAdmin("PUT", at+"&if_match="+etag, "run", `{"unlimited":true}`); p.Code != 412 {
		t.Errorf("a change of the version that has ended: %d %s", p.Code, p.Body)
	}
	if p := d.AskAdmin("PUT", at+"&if_match=none", "run", `{"unlimited":true}`); p.Code != 201 {
		t.Errorf("a change where nothing is: %d %s", p.Code, p.Body)
	}
	d.Clock.Set(end.Add(-time.Second).UnixMicro())
	if blockedBy(d.Take("user=x")) {
		t.Error("when the clock is set back, a block that was replaced holds again")
	}
	if n := f.Table().Len(); n != 1 {
		t.Errorf("there are %d assignments", n)
	}
}
