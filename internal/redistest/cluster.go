//go:build unix

package redistest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

const (
	masters = 3 // of each cluster
	slots   = 16384
)

// OwnCluster is a cluster of a test's own.
type OwnCluster struct {
	t testing.TB
	// Masters are the nodes that started as masters, in the order of their slots.
	Masters []*Server
	// Replicas are the nodes that started as replicas, in the order of their
	// masters.
	Replicas []*Server
}

// StartCluster starts a cluster of three masters, each with so many replicas,
// whose redis-server processes also get args. A master that is down for about
// one and a half seconds is failed over, if it has replicas. The cluster ends with
// the test.
func StartCluster(t testing.TB, replicas int, args ...string) *OwnCluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	ps, err := startAll(ctx, masters, replicas, args...)
	check(t, err)
	c := &OwnCluster{t: t}
	for i, p := range ps {
		if s := newServer(t, p); i < masters {
			c.Masters = append(c.Masters, s)
		} else {
			c.Replicas = append(c.Replicas, s)
		}
	}
	return c
}

// Addrs returns the addresses of all nodes, of the masters first.
func (c *OwnCluster) Addrs() []string { return addrsOf(c.processes()) }

// WaitOK waits until every running node says that the cluster serves all slots.
// Right after a node goes down the others still say that.
func (c *OwnCluster) WaitOK() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), startTimeout)
	defer cancel()
	for _, p := range c.processes() {
		if p.running() {
			check(c.t, until(ctx, "wait for the cluster", p.servesAllSlots))
		}
	}
}

func (c *OwnCluster) processes() (ps []*process) {
	for _, s := range c.Masters {
		ps = append(ps, s.p)
	}
	for _, s := range c.Replicas {
		ps = append(ps, s.p)
	}
	return ps
}

// startAll starts n processes, all or none; several form a cluster, each with so many
// replicas.
func startAll(ctx context.Context, n, replicas int, args ...string) (ps []*process, err error) {
	if n > 1 {
		// Where no replica could take over, no node may be held for dead on a busy
		// machine; otherwise a test waits for the failover.
		timeout := "15000"
		if replicas > 0 {
			timeout = "1500"
		}
		// However old a replica's data is, it may become master.
		args = append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", timeout, "--cluster-replica-validity-factor", "0"}, args...)
	}
	ps = make([]*process, n*(1+replicas))
	err = each(ps, func(i int) (err error) {
		ps[i], err = startProcess(ctx, args...)
		return err
	})
	if err == nil && n > 1 {
		err = formCluster(ctx, ps, n)
	}
	if err != nil {
		discardAll(ps)
		return nil, err
	}
	return ps, nil
}

func discardAll(ps []*process) {
	for _, p := range ps {
		if p != nil {
			p.discard()
		}
	}
}

func addrsOf(ps []*process) []string {
	addrs := make([]string, len(ps))
	for i, p := range ps {
		addrs[i] = p.addr()
	}
	return addrs
}

// each calls f for all processes at the same time.
func each(ps []*process, f func(i int) error) error {
	var g errgroup.Group
	for i := range ps {
		g.Go(func() error { return f(i) })
	}
	return g.Wait()
}

// formCluster makes a cluster of empty nodes that run: the first are masters, followed by
// the replicas of the first, and so on. It returns when all nodes agree that the cluster
// is whole. That takes at least two seconds, in which a master that has just started
// refuses to serve.
func formCluster(ctx context.Context, nodes []*process, masters int) error {
	for i, node := range nodes {
		// Nodes that meet with equal epochs would have to settle that first.
		if err := node.do(ctx, "cluster", "set-config-epoch", i+1); err != nil {
			return err
		}
		if i < masters {
			if err := node.do(ctx, "cluster", "addslotsrange", i*slots/masters, (i+1)*slots/masters-1); err != nil {
				return err
			}
		}
	}
	for i, node := range nodes {
		// After one meeting each, gossip would do the rest, but slowly.
		for _, other := range nodes[i+1:] {
			host, port, _ := net.SplitHostPort(other.addr())
			if err := node.do(ctx, "cluster", "meet", host, port); err != nil {
				return err
			}
		}
	}
	if err := each(nodes, func(i int) error {
		return until(ctx, "wait until the nodes have met", func(ctx context.Context) error {
			_, err := nodes[i].replicasSeen(ctx, len(nodes))
			return err
		})
	}); err != nil {
		return err
	}
	replicas := len(nodes) - masters
	for i, node := range nodes[masters:] {
		master := nodes[i*masters/replicas].client()
		id, err := master.ClusterMyID(ctx).Result()
		master.Close()
		if err != nil {
			return fmt.Errorf("ask a master for its id: %w", err)
		}
		if err := node.do(ctx, "cluster", "replicate", id); err != nil {
			return err
		}
	}
	return each(nodes, func(i int) error {
		return until(ctx, "wait for the cluster", func(ctx context.Context) error {
			if err := nodes[i].servesAllSlots(ctx); err != nil {
				return err
			}
			seen, err := nodes[i].replicasSeen(ctx, len(nodes))
			if err != nil {
				return err
			}
			if seen != replicas {
				return fmt.Errorf("%d replicas known", seen)
			}
			return nodes[i].isInStep(ctx)
		})
	})
}

func (p *process) do(ctx context.Context, args ...any) error {
	c := p.client()
	defer c.Close()
	if err := c.Do(ctx, args...).Err(); err != nil {
		return fmt.Errorf("%v at %s: %w", args, p.addr(), err)
	}
	return nil
}

// replicasSeen returns how many replicas a node sees that knows n nodes, and is connected
// with each.
func (p *process) replicasSeen(ctx context.Context, n int) (replicas int, err error) {
	c := p.client()
	defer c.Close()
	text, err := c.ClusterNodes(ctx).Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		// id address flags master ping pong epoch link slots...
		fields := strings.Fields(line)
		if len(fields) < 8 || fields[7] != "connected" ||
			strings.Contains(fields[2], "handshake") || strings.Contains(fields[2], "fail") {
			return 0, fmt.Errorf("a node is not there yet: %s", strings.TrimSpace(line))
		}
		if strings.Contains(fields[2], "slave") {
			replicas++
		}
		n--
	}
	if n != 0 {
		return 0, fmt.Errorf("%d nodes are not known", n)
	}
	return replicas, nil
}

// servesAllSlots returns nil if the node serves and knows an owner of every slot.
func (p *process) servesAllSlots(ctx context.Context) error {
	c := p.client()
	defer c.Close()
	info, err := c.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	state, ok := infoField(info, "cluster_state"), infoField(info, "cluster_slots_ok")
	if state != "ok" || ok != strconv.Itoa(slots) {
		return fmt.Errorf("cluster_state:%s cluster_slots_ok:%s", state, ok)
	}
	return nil
}

// isInStep returns nil for a master and for a replica in step with its master.
func (p *process) isInStep(ctx context.Context) error {
	c := p.client()
	defer c.Close()
	info, err := c.Info(ctx, "replication").Result()
	if err != nil {
		return err
	}
	if infoField(info, "role") == "slave" && infoField(info, "master_link_status") != "up" {
		return fmt.Errorf("replica's link is %s", infoField(info, "master_link_status"))
	}
	return nil
}
