package xds_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/config/xds"
)

func TestARestartWithoutTheServerGoesOnWithTheCache(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	m.set("1", domain("d", 5))
	path := filepath.Join(t.TempDir(), "limits.cache")
	options := xds.Options{Address: m.address, CachePath: path}
	f := follow(t, options)
	f.wantRequests("d", 5)
	m.set("2", domain("d", 6))
	f.wantRequests("d", 6)
	m.set("3", domain("", 7)) // a bad one is not kept
	f.wantAnswers(m, `ACK "1"`, `ACK "2"`, `NACK at "2"`, `NACK at "3"`)
	f.stop()
	m.stop()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
		t.Errorf("%d files are left", len(files))
	}

	again := follow(t, options)
	if again.live.Rules() == nil {
		t.Fatal("no limits")
	}
	again.wantRequests("d", 6)
	if page := again.statusPage(); !strings.Contains(page, "# stale: the limits in force are version 2 from the cache of ") || again.metric("ratelimitd_xds_stale", "") != 1 {
		t.Error(page)
	}
	m.start()
	m.set("1", domain("d", 6)) // the same, by another name
	asynctest.Eventually(t, "the server's own", func() bool { return again.metric("ratelimitd_xds_last_accepted_timestamp_seconds", "") > 0 })
	if page := again.statusPage(); strings.Contains(page, "stale") || again.metric("ratelimitd_xds_stale", "") != 0 || again.live.Status().Generation != 1 {
		t.Errorf("generation %d\n%s", again.live.Status().Generation, page)
	}
	m.set("2", domain("d", 8))
	again.wantRequests("d", 8)
}

func TestACacheThatCannotBeUsedIsAWarning(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	m.set("1", domain("d", 5))
	good := filepath.Join(t.TempDir(), "cache")
	f := follow(t, xds.Options{Address: m.address, CachePath: good})
	asynctest.Eventually(t, "the cache", func() bool { _, err := os.Stat(good); return err == nil })
	f.stop()
	content, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	flipped := append([]byte(nil), content...)
	flipped[len(flipped)-3] ^= 1
	for _, c := range []struct {
		name, want string
		content    []byte
		options    xds.Options
	}{
		{"torn", "it is torn, or of another", content[:len(content)-2], xds.Options{}},
		{"changed", "it is torn, or of another", flipped, xds.Options{}},
		{"of another node", "it is torn, or of another", content, xds.Options{NodeID: "other"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "cache")
			if err := os.WriteFile(path, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			o := c.options
			o.Address, o.CachePath = m.address, path
			f := follow(t, o)
			f.wantLog(c.want)
			if o.NodeID == "" {
				f.wantRequests("d", 5)
				asynctest.Eventually(t, "a good cache", func() bool { now, _ := os.ReadFile(path); return string(now) == string(content) })
			}
		})
	}
	t.Run("a folder", func(t *testing.T) {
		t.Parallel()
		f := follow(t, xds.Options{Address: m.address, CachePath: t.TempDir()})
		f.wantLog("is a directory")
		f.wantRequests("d", 5)
		f.wantLog("the configuration cannot be kept")
	})
}
