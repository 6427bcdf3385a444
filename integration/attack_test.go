package integration

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

const (
	// attackMemory is the memory of the container that the daemon assumes. It
	// must not exceed that.
	attackMemory = 512 << 20
	// attackRemainder is the memory that may remain after an attack: a process keeps
	// as much, garbage or not, before it gives memory back.
	attackRemainder = 80 << 20
	// attackForgotten is the time until the memory must be back. It takes three
	// to five seconds, and ten where other programs keep the processors so busy
	// that requests whose callers are gone still wait for them.
	attackForgotten = 30 * time.Second
)

const attackLimits = `
domain: api
descriptors:
  - key: user
    rate_limits:
      - {name: second, requests: 1000000, period: 1s}
      - {name: minute, requests: 100000000, period: 1m}
      - {name: hour, requests: 1000000000, period: 1h}
  - key: login
    rate_limit: {algorithm: fixed_window, requests: 1, period: 1d, block_for: 1h}
  - key: tokens
    rate_limit: {unit: hour, requests_per_unit: 1000000000}
  - key: tenant
    descriptors:
      - key: request
        rate_limit: {name: flight, algorithm: concurrency, requests: 10000, hold: 1m}
`

const attackAuth = `
endpoints:
  - name: web
    proxy: traefik
    domain: api
    descriptors:
      - entries: [{key: user, from: header, name: X-User, on_missing: omit}]
`

// victim is a daemon under attack.
type victim struct {
	*daemon
	good *goodCallers
}

func startVictim(t *testing.T, args ...string) *victim {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/limits", 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/limits", "all.yaml", attackLimits)
	args = append(args, "--limits-path", dir+"/limits", "--auth-path", write(t, dir, "auth.yaml", attackAuth))
	// The daemon itself would set this in such a container.
	d := launch(t, []string{"GOMEMLIMIT=" + strconv.Itoa(attackMemory/10*8)}, args...)
	d.waitServing()
	return &victim{daemon: d}
}

// memoryOf reads a line of /proc/PID/status, such as VmRSS.
func (v *victim) memoryOf(line string) int64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", v.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), line+":"); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}

func (v *victim) isAlive() bool {
	select {
	case <-v.done:
		return false
	default:
		return true
	}
}

// suffer runs attackers beside good callers for a time, and reports the cost.
func (v *victim) suffer(t *testing.T, list []attacker, long time.Duration) {
	t.Helper()
	v.good = v.callInGood(t)
	base := v.memoryOf("VmRSS")
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	attack := v.attack(t, list, long)
	for ctx.Err() == nil && v.isAlive() && v.memoryOf("VmRSS") < 2*attackMemory {
		time.Sleep(20 * time.Millisecond)
	}
	if v.isAlive() && v.memoryOf("VmRSS") >= 2*attackMemory {
		_ = v.cmd.Process.Kill() // this spares the machine
	}
	maxMemory := v.memoryOf("VmHWM")
	_ = attack.Process.Kill()
	_ = attack.Wait()
	ended := time.Now()
	if !v.isAlive() {
		t.Fatalf("the daemon is dead; it had %d MiB", maxMemory>>20)
	}
	for v.memoryOf("VmRSS") > base+attackRemainder && time.Since(ended) < attackForgotten {
		time.Sleep(100 * time.Millisecond)
	}
	after := v.memoryOf("VmRSS")
	maxMemory = max(maxMemory, v.memoryOf("VmHWM"))
	v.good.goHome()
	t.Logf("memory: %d MiB before, %d MiB at most, %d MiB %v after", base>>20, maxMemory>>20, after>>20, time.Since(ended).Round(100*time.Millisecond))
	if maxMemory > attackMemory {
		t.Errorf("the daemon took %d MiB of %d", maxMemory>>20, attackMemory>>20)
	}
	if after > base+attackRemainder {
		t.Errorf("%v after the attack the daemon has %d MiB, before it %d", attackForgotten, after>>20, base>>20)
	}
	v.good.report(t)
}

// All attackers run at once, against each store; in make soak for longer, and each also alone.
func TestAttack(t *testing.T) {
	long, isSoak := soaktest.Long(3*time.Second, 20*time.Second), soaktest.Long(false, true)
	stores := map[string]func(t *testing.T) []string{
		"memory": func(*testing.T) []string { return nil },
		"redis": func(t *testing.T) []string {
			return []string{"--store", "redis", "--redis-addresses", redistest.Start(t).Addr()}
		},
	}
	for name, flags := range stores {
		t.Run(name, func(t *testing.T) {
			startVictim(t, flags(t)...).suffer(t, attackers(), long)
			if !isSoak {
				return
			}
			for _, a := range attackers() {
				t.Run(a.name, func(t *testing.T) {
					startVictim(t, flags(t)...).suffer(t, []attacker{a}, long)
				})
			}
		})
	}
}
