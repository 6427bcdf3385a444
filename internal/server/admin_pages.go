package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/server/pages"
)

const (
	// pagesAtATime bounds the pages of each kind that are made at the same time.
	pagesAtATime = 4
	// pageWait is as long as Prometheus waits by default.
	pageWait = 10 * time.Second
	// pagePatience is how long a page waits for its reader while others wait for its
	// place: so 16 pages a second that no client reads are cut.
	pagePatience = 250 * time.Millisecond
	// pagePace is the number of bytes after which a page may wait for as long again.
	pagePace = 8 << 20
	// pageLongest is how long a page may take: it keeps what it shows, which may be rules
	// that were replaced meanwhile.
	pageLongest = time.Minute
)

// pagePlaces has the places of pages that are being written.
type pagePlaces struct{ tables, profiles *pages.Places }

func newPagePlaces() pagePlaces {
	places := func(longest time.Duration) *pages.Places {
		return &pages.Places{
			Max: pagesAtATime, Wait: pageWait, Patience: pagePatience, Pace: pagePace,
			Longest: longest,
		}
	}
	return pagePlaces{
		tables:   places(pageLongest),
		profiles: places(0), // they take as long as their request says
	}
}

// getRules writes the rules in force. A write fails only if the client is gone.
func (s *Server) getRules(w http.ResponseWriter, _ *http.Request) {
	out := textPage(w)
	defer out.Flush()
	if s.options.LimitsStatus != nil {
		s.options.LimitsStatus(out)
		writeGeneration(out, s.options.Live.Status(), "limits")
		fmt.Fprintln(out)
	} else {
		writeReloads(out, s.options.Live.Status(), "limits", "rules")
	}
	if rules := s.options.Live.Rules(); rules != nil {
		_ = words.WriteTable(out, rules, s.options.Now())
	}
}

func (s *Server) getAuth(w http.ResponseWriter, _ *http.Request) {
	out := textPage(w)
	defer out.Flush()
	writeReloads(out, s.options.HTTP.Auth.Status(), "endpoints", "endpoints")
	_ = s.options.HTTP.Auth.Value().WriteTable(out)
}

// textPage begins a text page.
func textPage(w http.ResponseWriter) *pages.Writer {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	return pages.NewWriter(w)
}

// writeReloads writes when files were loaded, and what is wrong with them.
func writeReloads(out io.Writer, st reload.Status, what, inForce string) {
	until := "these " + inForce + " stay in force until they are fixed"
	if st.Generation == 0 {
		until = "no request is answered until they are fixed"
	}
	writeGeneration(out, st, what)
	if st.LastError != nil {
		fmt.Fprintf(out, "# since %s the files have errors; %s:\n", st.FailedAt.UTC().Format(time.RFC3339), until)
		for line := range strings.Lines(st.LastError.Error()) {
			fmt.Fprintf(out, "#   %s\n", strings.TrimRight(line, "\n"))
		}
	}
	fmt.Fprintln(out)
}

// writeGeneration writes when what is in force was loaded.
func writeGeneration(out io.Writer, st reload.Status, what string) {
	if st.Generation == 0 {
		fmt.Fprintf(out, "# no %s were loaded yet\n", what)
		return
	}
	fmt.Fprintf(out, "# generation %d, loaded %s; %d reloads failed since the start\n",
		st.Generation, st.LoadedAt.UTC().Format(time.RFC3339), st.Failed)
}
