// Package clitest runs commands for their tests: against a daemon in the test's process,
// or against a fake of its admin API, which can also give answers that a daemon seldom
// gives. It imports the command line.
package clitest

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/filestore"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/cli"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/adminapi"
	"github.com/ratelimitd/ratelimitd/internal/top"
)

// Run runs a command line, whose first word is the program's name.
func Run(t *testing.T, input string, words ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = cli.Run(t.Context(), "", words, strings.NewReader(input), &out, &errOut)
	return out.String(), errOut.String(), code
}

// Blocks returns the fenced blocks of a page in one language.
func Blocks(t *testing.T, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		found = append(found, m[1])
	}
	return found
}

// StartDaemon starts a daemon with a store in memory in this process; its addresses are
// put into the environment.
func StartDaemon(t *testing.T, limits, tokens string) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	live := limitsfile.NewLive(filetest.Write(t, t.TempDir(), "limits.yaml", limits), log)
	if err := live.Reload(); err != nil {
		t.Fatal(err)
	}
	var members *access.LiveMembers
	if tokens != "" {
		members = access.NewLiveMembers(tokens, log)
		if err := members.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	memory := memstore.New(memstore.Options{MaxKeys: 1000})
	assignments, err := filestore.Open(filestore.Options{Hooks: assign.Hooks{Forget: memory.Forget, Counted: memory.Counted}})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := server.New(server.Options{
		GRPC:     server.GRPC{Address: "127.0.0.1:0"},
		Admin:    server.Admin{Address: "127.0.0.1:0", Members: members, Assignments: assignments, Relief: adminapi.Relief{Times: 2, For: 24 * time.Hour}},
		Assigned: assignments.Table(),
		Requests: server.Requests{Bounds: decide.Bounds{Descriptors: 10, Entries: 10, Bytes: 10_000, Takes: 128}},
		Tops:     decide.Tops{Denied: true, Used: true, Budget: top.NewBudget(64 << 20)},
		Live:     live, Store: memory, Metrics: prometheus.NewRegistry(), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	stop, ended := make(chan time.Duration), make(chan error)
	go func() { ended <- srv.Run(stop) }()
	t.Cleanup(func() {
		stop <- 0
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = assignments.Close()
		_ = memory.Close()
	})
	t.Setenv("RATELIMITD_GRPC_ADDRESS", srv.Address("grpc"))
	t.Setenv("RATELIMITD_ADMIN_ADDRESS", srv.Address("admin"))
}

// Words splits a line as a shell does, given that it has no quotes except double ones.
func Words(line string) []string {
	var words []string
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// ManyRows returns CSV of n rows.
func ManyRows(n int) string {
	var s strings.Builder
	s.WriteString("domain,entries,plan\n")
	for i := range n {
		fmt.Fprintf(&s, "api,tenant=t%d,pro\n", i)
	}
	return s.String()
}
