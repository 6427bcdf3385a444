//go:build unix

package redistest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

func TestOwnerKnowsWhetherItsProcessLives(t *testing.T) {
	t.Parallel()
	me := self()
	if got, ok := parseOwner(me.String()); !ok || got != me {
		t.Errorf("%s parses as %v, %v", me, got, ok)
	}
	if me.dead() {
		t.Error("this process is taken for dead")
	}
	other := me
	other.host = "elsewhere"
	other.pid = 1 << 30
	if other.dead() {
		t.Error("a process of another host is taken for dead")
	}
	other.host = me.host
	if !other.dead() {
		t.Error("a pid that nobody has is taken for alive")
	}
	if me.born != "" {
		before := me
		before.born = "1"
		if !before.dead() {
			t.Error("an earlier process with this pid is taken for alive")
		}
	}
	for _, bad := range []string{"", "locks", "a.b.c", "a.0.1", "a.-1.1"} {
		t.Run(bad, func(t *testing.T) {
			if o, ok := parseOwner(bad); ok {
				t.Errorf("%q parses as %v", bad, o)
			}
		})
	}
}

const envDoomed = "REDISTEST_DOOMED"

// TestDoomed is the process that the tests below kill. It starts a Redis, prints its
// address, and waits or panics.
func TestDoomed(t *testing.T) {
	how := os.Getenv(envDoomed)
	if how == "" {
		t.Skip("runs in a process of its own only")
	}
	fmt.Printf("doomed %s %s\n", self(), Single(t))
	if how == "panic" {
		panic("as told")
	}
	select {}
}

// doom runs TestDoomed in a process of its own, which ends in a bad way, and
// returns its name and the address of its Redis.
func doom(t *testing.T, how, way string) (owner, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestDoomed$", "-test.timeout=3m")
	cmd.Env = append(os.Environ(), envDoomed+"="+how, envWay+"="+way)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := spawn(cmd); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "doomed "); ok {
			name, addr, _ := strings.Cut(rest, " ")
			o, _ := parseOwner(name)
			if how == "panic" {
				_ = cmd.Wait()
			}
			return o, addr
		}
	}
	t.Fatal("the process said nothing")
	return owner{}, ""
}

func TestProcessesEndWithTheTestProcess(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux's parent-death signal")
	}
	if _, err := lookRedis(); err != nil {
		missing(t, err)
	}
	for _, how := range []string{"kill", "panic"} {
		t.Run(how, func(t *testing.T) {
			o, addr := doom(t, how, wayPath)
			ctx, cancel := context.WithTimeout(t.Context(), waitDeadline)
			defer cancel()
			err := until(ctx, "wait for the end of "+addr, func(ctx context.Context) error {
				if knock(ctx, addr) == nil {
					return fmt.Errorf("it listens")
				}
				return nil
			})
			if err != nil {
				t.Errorf("after %s: %v", how, err)
			}
			b, err := base()
			if err != nil {
				t.Fatal(err)
			}
			removeDirsOfTheDead(b)
			if left, _ := filepath.Glob(filepath.Join(b, o.String()+"-*")); len(left) > 0 {
				t.Errorf("after %s: %v is left", how, left)
			}
		})
	}
}

func TestContainersOfTheDeadAreRemoved(t *testing.T) {
	t.Parallel()
	requireDocker(t)
	src, err := openBy(wayDocker, kindSingle, "") // of the living
	if err != nil {
		t.Fatal(err)
	}
	defer src.stop()
	o, _ := doom(t, "kill", wayDocker)
	cli, err := testcontainers.NewDockerClientWithOpts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	ctx, cancel := context.WithTimeout(t.Context(), waitDeadline)
	defer cancel()
	// Another test process may be removing the container just now.
	err = until(ctx, "wait for the end of the container", func(ctx context.Context) error {
		removeContainersOfTheDead(ctx, cli)
		list, err := cli.ContainerList(ctx, client.ContainerListOptions{
			All:     true,
			Filters: make(client.Filters).Add("label", ownerLabel+"="+o.String()),
		})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("it is left: %s", list.Items[0].Status)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	checkSingle(t, src.addrs[0])
}
