//go:build unix

package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// sentinels is how many watch a master; two of them must agree.
const sentinels = 3

// StartSentinel starts a master, a replica of it and three sentinels that call
// it name. When the master is silent for two seconds, the replica takes its
// place; on a busy machine that may happen without a fault, and happen back.
// It returns when the sentinels know of each other and could fail over.
func StartSentinel(t testing.TB, name string) (addrs []string, master, replica *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	master = Start(t)
	replica = Start(t, "--replicaof", "127.0.0.1 "+strconv.Itoa(master.p.port))
	check(t, until(ctx, "wait for the replica", replica.p.isInStep))
	var ps []*process
	for range sentinels {
		p, err := startSentinel(ctx, name, master.p.port)
		check(t, err)
		newServer(t, p)
		ps = append(ps, p)
	}
	for _, p := range ps {
		check(t, waitWatching(ctx, p, name))
	}
	return addrsOf(ps), master, replica
}

func startSentinel(ctx context.Context, name string, masterPort int) (*process, error) {
	return startRetrying(ctx, func(p *process) error {
		conf := filepath.Join(p.dir, "sentinel.conf") // the sentinel writes to it
		p.args = []string{conf, "--sentinel"}
		return os.WriteFile(conf, fmt.Appendf(nil, `port %d
bind 127.0.0.1
dir %s
sentinel monitor %s 127.0.0.1 %d %d
sentinel down-after-milliseconds %[3]s 2000
sentinel failover-timeout %[3]s 3000
`, p.port, p.dir, name, masterPort, sentinels/2+1), 0o600)
	})
}

// waitWatching waits until the sentinel knows the others, and the replica well
// enough to promote it.
func waitWatching(ctx context.Context, p *process, name string) error {
	c := redis.NewSentinelClient(&redis.Options{Addr: p.addr(), MaxRetries: -1})
	defer c.Close()
	// It asks its master for replicas every ten seconds and says hello to
	// other sentinels every two. When a busy machine has stopped it for two, it
	// fails over nothing for half a minute. A Redis that has no such command,
	// before 7.0, only takes longer.
	_ = c.Process(ctx, redis.NewStatusCmd(ctx, "sentinel", "debug", "info-period", "200", "publish-period", "200", "tilt-period", "1000"))
	return until(ctx, "wait for the sentinels", func(ctx context.Context) error {
		m, err := c.Master(ctx, name).Result()
		if err != nil {
			return err
		}
		if m["flags"] != "master" || m["num-other-sentinels"] != strconv.Itoa(sentinels-1) {
			return fmt.Errorf("master is %s, %s other sentinels", m["flags"], m["num-other-sentinels"])
		}
		rs, err := c.Replicas(ctx, name).Result()
		if err != nil {
			return err
		}
		if len(rs) != 1 || rs[0]["master-link-status"] != "ok" || strings.Contains(rs[0]["flags"], "down") {
			return fmt.Errorf("replicas are %v", rs)
		}
		return nil
	})
}
