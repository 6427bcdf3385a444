package look_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/cli"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/exit"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// logKey hashes the values of a log.
const logKey = "0123456789abcdef"

// logText is a log of one night.
var logText = strings.Join([]string{
	`{"v":1,"kind":"limits","time":"2026-11-23T02:00:00.000000Z","limits":"00112233445566aa","files":[]}`,
	`{"v":1,"time":"2026-11-23T02:59:59.999000Z","api":"grpc","limits":"00112233445566aa","domain":"api","result":"allowed","descriptors":[{"entries":[["tenant","acme"],["path","/x"]],"rule":"tenant / path","plan":"pro","cost":1,"result":"allowed","limits":[{"name":"second","result":"near","remaining":1},{"name":"month","result":"allowed","remaining":8112}]}]}`,
	`{"v":1,"time":"2026-11-23T03:00:00.120000Z","api":"grpc","limits":"00112233445566aa","domain":"api","result":"denied","descriptors":[{"entries":[["tenant","acme"],["path","/x"]],"rule":"tenant / path","plan":"pro","cost":1,"result":"denied","limits":[{"name":"second","result":"denied","remaining":0,"retry_after_us":120000,"reset_after_us":500000},{"name":"month","result":"denied_by_other","remaining":8112}]}]}`,
	`{"v":1,"time":"2026-11-23T03:05:00.000000Z","api":"grpc","limits":"00112233445566aa","domain":"api","result":"denied","descriptors":[{"entries":[["tenant","acme"]],"rule":"tenant","cost":5,"result":"allowed","limits":[{"name":"second","result":"denied_by_other","remaining":3}]},{"entries":[["user","bob"]],"rule":"user","cost":1,"result":"denied","limits":[{"name":"day","result":"denied","remaining":0,"retry_after_us":-1}]}]}`,
	`{"v":1,"time":"2026-11-23T03:10:00.000000Z","api":"grpc","limits":"00112233445566aa","domain":"login","result":"denied","descriptors":[{"entries":[["address","192.0.2.7"]],"rule":"address","cost":1,"result":"denied","refusal":"blocked","limits":[{"name":"blocked","result":"denied","remaining":0,"retry_after_us":3600000000}]}]}`,
	`no line`,
	`{"v":1,"time":"2026-11-23T03:20:00.000000Z","api":"grpc","domain":"api","result":"error","code":"Unavailable","descriptors":[{"entries":[["tenant","acme"]],"rule":"tenant","cost":1,"result":"error"}]}`,
	`{"v":1,"time":"2026-11-23T03:30:00.000000Z","api":"grpc","domain":"api","result":"allowed","degraded":true,"descriptors":[{"entries":[["job","it's a \u001b[2J"]],"rule":"job","cost":1,"result":"shadowed","limits":[{"name":"hour","result":"shadowed","remaining":0,"retry_after_us":60000000}]}]}`,
}, "\n") + "\n"

const unreadOfLog = "1 line could not be read; the first: "

// Five questions, and the lines that answer them.
func TestLogAnswersQuestions(t *testing.T) {
	path := filetest.Write(t, t.TempDir(), "decisions.jsonl", logText)
	t.Setenv("RATELIMITD_DECISIONS_PATH", path)
	const (
		near    = "2026-11-23T02:59:59.999Z  allowed   api  tenant=acme,path=/x  tenant / path (plan pro)  cost 1  limit second: 1 left; limit month: 8112 left\n"
		denied  = "2026-11-23T03:00:00.120Z  denied    api  tenant=acme,path=/x  tenant / path (plan pro)  cost 1  limit second: 0 left, would pass in 120ms\n"
		other   = "2026-11-23T03:05:00.000Z  denied    api  tenant=acme  tenant  cost 5  another descriptor of the request: user=bob, limit day: 0 left, can never pass\n"
		bob     = "2026-11-23T03:05:00.000Z  denied    api  user=bob  user  cost 1  limit day: 0 left, can never pass\n"
		blocked = "2026-11-23T03:10:00.000Z  denied    login  address=192.0.2.7  address  cost 1  blocked by an assignment, for 1h more\n"
		failed  = "2026-11-23T03:20:00.000Z  error     api  tenant=acme  tenant  cost 1  the request failed: Unavailable\n"
		shadow  = `2026-11-23T03:30:00.000Z  shadowed  api  'job=it'\''s a \u{1b}[2J'  job  cost 1  limit hour: 0 left, would pass in 1m, not in force; not decided by the store alone` + "\n"
	)
	for _, c := range []struct{ question, args, want string }{
		{"why was acme denied at 3 in the morning?", "tenant=acme --result denied --since 2026-11-23T03:00 --until 2026-11-23T04:00", denied + other},
		{"what had acme left before?", "tenant=acme --until 2026-11-23T03:00", near},
		{"who is blocked at the login?", "--domain login --result blocked", blocked},
		{"what failed?", "--result error", failed},
		{"whom would the rule on trial deny?", "--rule job --result shadowed", shadow},
		{"who denied acme's request?", "user=bob", bob},
		{"what was on that day?", "--since 2026-11-23 --until 2026-11-23", near + denied + other + bob + blocked + failed + shadow},
	} {
		out, stderr, code := clitest.Run(t, "", append([]string{"ratelimitd", "log"}, strings.Fields(c.args)...)...)
		if code != 0 || out != c.want || !strings.HasPrefix(stderr, unreadOfLog+path+":6: ") {
			t.Errorf("%s\nlog %s exits with %d: %s\n%s\nwant\n%s", c.question, c.args, code, stderr, out, c.want)
		}
	}
	lines := strings.SplitAfter(logText, "\n")
	if out, _, code := clitest.Run(t, logText, "ratelimitd", "log", "--json", "tenant=acme", "--result", "denied", "-"); code != 0 || out != lines[2]+lines[3] {
		t.Errorf("--json exits with %d:\n%s", code, out)
	}
}

// Mistakes, and what is said of them.
func TestLogTellsOfMistakes(t *testing.T) {
	dir := t.TempDir()
	path := filetest.Write(t, dir, "decisions.jsonl", logText)
	t.Chdir(dir)
	if err := syscall.Mkfifo("pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ env, args, want string }{
		{path, "--follow tenant=acme ./pipe", "found ./pipe with --follow, which is no file, such as a pipe; allowed: a file, or -"},
		{path, "--result denid", `flag --result: found "denid"; allowed: allowed, denied, error, shadowed, blocked, `},
		{"", "tenant=acme", "decisions.path is not set in this environment or in --config; give the file"},
		{"-", "tenant=acme", "standard output (decisions.path is -)"},
		{path, "tenant=acme nothing.jsonl", "log: stat nothing.jsonl: no such file or directory"},
		{filepath.Join(dir, "none.jsonl"), "tenant=acme", "no such file or directory"},
		{path, "acme", `found "acme", which is neither a subject, such as tenant=acme, nor a file`},
		{path, "tenant=acme user=bob", `found "user=bob" beside another subject; allowed: one`},
		{path, "tenant=acme .", "found the folder .; allowed: a file"},
		{path, "--since 1h --until 2h", "allowed: --until after --since"},
		{path, "--since tomorrow", `flag --since: found "tomorrow", which is to come; allowed: a span before now such as 1h`},
		{path, "--since 2254-01-01", "which is to come; allowed: a moment before now"},
		{path, "--follow --until now", "found --until beside --follow"},
		{path, "tenant=acmee", "found no line about tenant=acmee in " + path + " (6 lines read)\n"},
		{path, "tenant=acme --domain login", "4 lines about it, which the other flags leave out\n"},
		{path, "path=/x", "a subject is the beginning of a descriptor; there is tenant=acme,path=/x\n"},
		{path, "--hash-key-file none", "flag --hash-key-file: read the password file: open none: no such file"},
	} {
		t.Setenv("RATELIMITD_DECISIONS_PATH", c.env)
		out, stderr, code := clitest.Run(t, "", append([]string{"ratelimitd", "log"}, strings.Fields(c.args)...)...)
		if code != exit.Error || out != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("log %s exits with %d: %s%s\nwant %s", c.args, code, stderr, out, c.want)
		}
	}
}

// In a log with hashed values a subject is found by the key, and without it is told how.
func TestLogFindsHashedSubjects(t *testing.T) {
	dir := t.TempDir()
	hash := decisionlog.HashOf([]byte(logKey), "user", "alice")
	path := filetest.Write(t, dir, "decisions.jsonl", fmt.Sprintf(`{"v":1,"time":"2026-11-23T03:00:00.000000Z","domain":"api","result":"allowed","descriptors":[{"entries":[["user",%q]],"cost":1,"result":"allowed"}]}`+"\n", hash))
	key := filetest.Write(t, dir, "key", logKey+"\n")
	out, stderr, code := clitest.Run(t, "", "ratelimitd", "log", "user=alice", path)
	if code != exit.Error || out != "" || !strings.Contains(stderr, "values in it are hashed (decisions.values: hash): give the key with --hash-key-file") {
		t.Errorf("without the key it exits with %d: %s%s", code, stderr, out)
	}
	t.Setenv("RATELIMITD_DECISIONS_PATH", path)
	t.Setenv("RATELIMITD_DECISIONS_VALUES", "hash")
	t.Setenv("RATELIMITD_DECISIONS_HASH_KEY_FILE", key)
	for _, args := range [][]string{{"user=alice"}, {"user=alice", "--hash-key-file", key, path}, {"user=" + hash, path}} {
		if out, stderr, code := clitest.Run(t, "", append([]string{"ratelimitd", "log"}, args...)...); code != 0 || !strings.Contains(out, "user="+hash) {
			t.Errorf("log %q exits with %d: %s%s", args, code, stderr, out)
		}
	}
	if _, stderr, code := clitest.Run(t, "", "ratelimitd", "log", "user=bob"); code != exit.Error || strings.Contains(stderr, "give the key") {
		t.Errorf("with the key it exits with %d: %s", code, stderr)
	}
}

// What comes out of a pipe is shown before the pipe ends.
func TestLogShowsLinesOfAPipeAtOnce(t *testing.T) {
	t.Parallel()
	in, w := io.Pipe()
	var out, stderr asynctest.Buffer
	ended := make(chan int)
	go func() {
		ended <- cli.Run(t.Context(), "", []string{"ratelimitd", "log", "tenant=acme", "-"}, in, &out, &stderr)
	}()
	if _, err := io.WriteString(w, logText); err != nil {
		t.Fatal(err)
	}
	asynctest.Eventually(t, "the lines are shown", func() bool { return strings.Count(out.String(), "\n") == 4 })
	w.Close()
	if code := <-ended; code != 0 {
		t.Errorf("it exits with %d", code)
	}
}

// Followed, it shows lines as they are written, until it is told to end.
func TestLogFollows(t *testing.T) {
	path := filetest.Write(t, t.TempDir(), "decisions.jsonl", logText)
	ctx, cancel := context.WithCancel(t.Context())
	var out, stderr asynctest.Buffer
	ended := make(chan int)
	go func() {
		ended <- cli.Run(ctx, "", []string{"ratelimitd", "log", "--follow", "--since", "2026-11-23", "tenant=acme", path}, strings.NewReader(""), &out, &stderr)
	}()
	asynctest.Eventually(t, "what is there is shown", func() bool { return strings.Contains(out.String(), "Unavailable") })
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	later := strings.Replace(strings.SplitAfter(logText, "\n")[2], "03:00:00.120", "03:40:00.120", 1)
	if _, err := file.WriteString(later); err != nil {
		t.Fatal(err)
	}
	asynctest.Eventually(t, "a new line is shown", func() bool { return strings.Contains(out.String(), "03:40:00.120Z  denied") })
	cancel()
	select {
	case code := <-ended:
		if code != 0 || !strings.HasPrefix(stderr.String(), unreadOfLog) {
			t.Errorf("it exits with %d: %s", code, stderr.String())
		}
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
}
