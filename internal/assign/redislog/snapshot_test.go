package redislog_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/assign/assigntest"
	"github.com/ratelimitd/ratelimitd/internal/assign/redislog"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// withSnapshot are the options of a daemon with a snapshot.
func withSnapshot(path string) redislog.Options {
	return redislog.Options{CachePath: path, Where: redislog.Where{Mode: "single", Addresses: []string{"redis:6379"}, Prefix: "rl"}}
}

// All daemons end, and Redis loses all. The snapshot of the one that had seen the most
// is put back, whichever starts first.
func TestSnapshotsArePutBackAfterAllHaveEnded(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		dir := t.TempDir()
		older := startLoaded(t, c, withSnapshot(filepath.Join(dir, "older")))
		fill(t, older, 100)
		older.stop()
		newer := startLoaded(t, c, withSnapshot(filepath.Join(dir, "newer")))
		changeHalf(t, newer)
		want := inTable(newer)
		newer.stop()
		(&daemon{conn: clientOf(t, c)}).lose(t, everything...)

		older = startLoaded(t, c, withSnapshot(filepath.Join(dir, "older")))
		if n := older.Table().Len(); n != 100 {
			t.Errorf("with its snapshot a daemon has %d, want 100", n)
		}
		asynctest.Eventually(t, "the older snapshot is put back", func() bool { return len(inRedis(t, older, 32)) == 100 })
		newer = startLoaded(t, c, withSnapshot(filepath.Join(dir, "newer")))
		asynctest.Eventually(t, "the newer one is put back", func() bool {
			return reflect.DeepEqual(inTable(older), want) && reflect.DeepEqual(inRedis(t, newer, 32), want)
		})
	})
}

// A daemon that starts with a snapshot has what was changed meanwhile.
func TestSnapshotIsWhereADaemonGoesOn(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	path := filepath.Join(t.TempDir(), "snapshot")
	d := startLoaded(t, c, withSnapshot(path))
	fill(t, d, 100)
	d.stop()
	other := startLoaded(t, c, redislog.Options{})
	assigntest.Apply(t, other, assigntest.Plan(assigntest.Subject("api", "0"), "since"), assigntest.Delete(assigntest.Subject("api", "1")))
	d = startLoaded(t, c, withSnapshot(path))
	if want := inTable(other); !reflect.DeepEqual(inTable(d), want) {
		t.Errorf("it has %d, want %d, or others", d.Table().Len(), len(want))
	}
}

// Redis is away at the start: what the snapshot says is in force, and not taken for all.
func TestSnapshotHoldsWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := connOptions(redisconn.Single, server.Addr())
	path := filepath.Join(t.TempDir(), "snapshot")
	d := startLoaded(t, c, withSnapshot(path))
	fill(t, d, 100)
	d.stop()
	server.Kill()
	d = start(t, c, withSnapshot(path))
	asynctest.Eventually(t, "the snapshot is in force", func() bool { return d.Table().Len() == 100 })
	if d.Loaded() {
		t.Error("it counts as complete")
	}
	server.Restart() // empty
	asynctest.Eventually(t, "it is put back", func() bool { return len(inRedis(t, d, 32)) == 100 && d.Loaded() })
}

// A snapshot that is torn, of another Redis, or no snapshot is not used, and told.
func TestSnapshotThatCannotBeUsedIsTold(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	path := filepath.Join(t.TempDir(), "snapshot")
	d := startLoaded(t, c, withSnapshot(path))
	fill(t, d, 100)
	d.stop()
	d.conn = clientOf(t, c)
	d.lose(t, everything...)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, where, says string
		text              []byte
	}{
		{name: "another Redis", where: "another:6379", says: "of another Redis, or of another redis.prefix: single redis:6379, master", text: whole},
		{name: "cut", says: "torn", text: whole[:len(whole)-70]},
		{name: "cut in a line", says: "torn", text: whole[:len(whole)/2]},
		{name: "changed", says: "torn", text: bytes.Replace(whole, []byte(`"plan":"p"`), []byte(`"plan":"q"`), 1)},
		{name: "other", says: "no snapshot", text: []byte("hello\n")},
		{name: "empty", says: "no snapshot"},
		{name: "long lines", says: "torn", text: append([]byte("ratelimitd assignments 1\n{}\n"), bytes.Repeat([]byte("x"), 1<<20)...)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := withSnapshot(filepath.Join(t.TempDir(), "snapshot"))
			if tc.where != "" {
				o.Where.Addresses = []string{tc.where}
			}
			if err := os.WriteFile(o.CachePath, tc.text, 0o600); err != nil {
				t.Fatal(err)
			}
			var log asynctest.Buffer
			o.Log = textLog(&log)
			d := startLoaded(t, c, o)
			if n := d.Table().Len(); n != 0 {
				t.Errorf("%d are in force", n)
			}
			if text := log.String(); !strings.Contains(text, tc.says) {
				t.Errorf("the log has %q, want %q", text, tc.says)
			}
			if tc.where == "" {
				return
			}
			aside := o.CachePath + ".other"
			if kept, err := os.ReadFile(aside); err != nil || !bytes.Equal(kept, tc.text) || !strings.Contains(log.String(), "--snapshot "+aside+" |") {
				t.Errorf("it is kept with %d bytes, %v; the log has %q", len(kept), err, log.String())
			}
		})
	}
}

// A daemon finds the snapshot of its Redis where the settings name other nodes of it, and
// when they name it again after another one. No snapshot is written over.
func TestSnapshotIsFoundByAnyAddress(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "snapshot")
	one := connOptions(redisconn.Single, redistest.Single(t))
	here := redislog.Where{Mode: "cluster", Addresses: []string{"a:1", "b:1"}, Prefix: "rl", Master: `"x, y"`}
	d := startLoaded(t, one, redislog.Options{CachePath: path, Where: here})
	fill(t, d, 50)
	d.stop()
	for i, step := range []struct {
		change func(w *redislog.Where)
		has    int
		aside  string // the last one that is kept
	}{
		{change: func(w *redislog.Where) { w.Addresses = []string{"c:1", "b:1"} }, has: 50},
		{change: func(w *redislog.Where) { w.Addresses = []string{"d:1", "c:1"} }, has: 50},
		{change: func(w *redislog.Where) { w.Addresses = []string{"e:1"} }, aside: ".other"},
		{change: func(w *redislog.Where) { w.Prefix = "other" }, aside: ".other.2"},
		{change: func(w *redislog.Where) { w.Mode = "single" }, aside: ".other.3"},
		{change: func(w *redislog.Where) { w.Database = 1 }, aside: ".other.4"},
		{change: func(w *redislog.Where) { w.Master = "z" }, aside: ".other.5"},
		{change: func(w *redislog.Where) { w.Addresses = []string{"c:1"} }, has: 50, aside: ".other.6"},
		{change: func(w *redislog.Where) { w.Prefix = "other" }, has: 1, aside: ".other"},
	} {
		o := redislog.Options{CachePath: path, Where: here}
		step.change(&o.Where)
		c := one
		c.Prefix = fmt.Sprintf("%s-%d", one.Prefix, i) // which is empty
		d := start(t, c, o)
		asynctest.Eventually(t, "it has loaded", d.Loaded)
		if n := d.Table().Len(); n != step.has {
			t.Errorf("step %d: it has %d assignments, want %d", i, n, step.has)
		}
		if step.has == 0 {
			fill(t, d, 1)
		}
		d.stop()
		if _, err := os.Stat(path + step.aside); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
	}
	if kept, err := filepath.Glob(path + ".other*"); err != nil || len(kept) != 5 {
		t.Errorf("kept are %v, %v", kept, err)
	}
}
