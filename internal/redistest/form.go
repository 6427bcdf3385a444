//go:build unix

package redistest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

const (
	slots = 16384

	// sharedNodeTimeout, in ms, is long: nothing in the shared cluster is
	// meant to fail, nor where no replica could take over, and a node must not
	// be held for dead on a busy machine.
	sharedNodeTimeout = 15000
	// ownNodeTimeout, in ms, is short: a test waits for the failover.
	ownNodeTimeout = 1500
)

// formCluster makes a cluster of empty nodes that run: the first of addrs are
// masters, followed by replicas per master, those of the first master first.
// It returns when all nodes agree that the cluster is whole. That takes at least
// two seconds, in which a master that has just started refuses to serve.
func formCluster(ctx context.Context, addrs []string, replicas int) error {
	masters := len(addrs) / (1 + replicas)
	nodes := make([]*redis.Client, len(addrs))
	for i, addr := range addrs {
		nodes[i] = dial(addr, "")
		defer nodes[i].Close()
	}
	for i, node := range nodes {
		// Nodes that meet with equal epochs would have to settle that first.
		if err := node.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
			return fmt.Errorf("set the epoch of %s: %w", addrs[i], err)
		}
		if i < masters {
			from, to := i*slots/masters, (i+1)*slots/masters-1
			if err := node.Do(ctx, "cluster", "addslotsrange", from, to).Err(); err != nil {
				return fmt.Errorf("give slots to %s: %w", addrs[i], err)
			}
		}
	}
	if err := meet(ctx, nodes, addrs); err != nil {
		return err
	}
	if err := replicate(ctx, nodes, masters, replicas); err != nil {
		return err
	}
	return waitWhole(ctx, nodes, masters)
}

// meet introduces every node to every other. After one meeting each, gossip would
// do the rest, but slowly.
func meet(ctx context.Context, nodes []*redis.Client, addrs []string) error {
	for i, node := range nodes {
		for _, addr := range addrs[i+1:] {
			host, port, err := net.SplitHostPort(addr)
			if err != nil {
				return err
			}
			if err := node.ClusterMeet(ctx, host, port).Err(); err != nil {
				return fmt.Errorf("have %s meet %s: %w", addrs[i], addr, err)
			}
		}
	}
	return each(ctx, nodes, func(ctx context.Context, node *redis.Client) error {
		return until(ctx, "wait until the nodes have met", func(ctx context.Context) error {
			_, err := view(ctx, node, len(nodes))
			return err
		})
	})
}

func replicate(ctx context.Context, nodes []*redis.Client, masters, replicas int) error {
	for i, node := range nodes[masters:] {
		id, err := nodes[i/replicas].Do(ctx, "cluster", "myid").Text()
		if err != nil {
			return fmt.Errorf("ask a master for its id: %w", err)
		}
		if err := node.Do(ctx, "cluster", "replicate", id).Err(); err != nil {
			return fmt.Errorf("make a node a replica: %w", err)
		}
	}
	return nil
}

// waitWhole waits until each node serves, knows the role of each other, and
// each replica has its master's data.
func waitWhole(ctx context.Context, nodes []*redis.Client, masters int) error {
	return each(ctx, nodes, func(ctx context.Context, node *redis.Client) error {
		return until(ctx, "wait for the cluster", func(ctx context.Context) error {
			if err := clusterOK(ctx, node); err != nil {
				return err
			}
			lines, err := view(ctx, node, len(nodes))
			if err != nil {
				return err
			}
			seen := 0
			for _, fields := range lines {
				if strings.Contains(fields[2], "slave") {
					seen++
				}
			}
			if seen != len(nodes)-masters {
				return fmt.Errorf("%d replicas known", seen)
			}
			return synced(ctx, node)
		})
	})
}

// view returns the lines of CLUSTER NODES, split, if node knows n nodes and is
// connected with each.
func view(ctx context.Context, node *redis.Client, n int) ([][]string, error) {
	text, err := node.ClusterNodes(ctx).Result()
	if err != nil {
		return nil, err
	}
	var lines [][]string
	for line := range strings.Lines(text) {
		// id address flags master ping pong epoch link slots...
		fields := strings.Fields(line)
		if len(fields) < 8 || fields[7] != "connected" ||
			strings.Contains(fields[2], "handshake") || strings.Contains(fields[2], "fail") {
			return nil, fmt.Errorf("a node is not there yet: %s", strings.TrimSpace(line))
		}
		lines = append(lines, fields)
	}
	if len(lines) != n {
		return nil, fmt.Errorf("%d of %d nodes known", len(lines), n)
	}
	return lines, nil
}

// clusterOK returns nil if the node serves and knows an owner of every slot.
func clusterOK(ctx context.Context, node *redis.Client) error {
	info, err := node.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	state, ok := infoField(info, "cluster_state"), infoField(info, "cluster_slots_ok")
	if state != "ok" || ok != strconv.Itoa(slots) {
		return fmt.Errorf("cluster_state:%s cluster_slots_ok:%s", state, ok)
	}
	return nil
}

// synced returns nil for a master and for a replica in step with its master.
func synced(ctx context.Context, node *redis.Client) error {
	info, err := node.Info(ctx, "replication").Result()
	if err != nil {
		return err
	}
	if infoField(info, "role") == "slave" && infoField(info, "master_link_status") != "up" {
		return fmt.Errorf("replica's link is %s", infoField(info, "master_link_status"))
	}
	return nil
}

// waitClusterOK waits until the nodes at addrs serve.
func waitClusterOK(ctx context.Context, addrs []string) error {
	nodes := make([]*redis.Client, len(addrs))
	for i, addr := range addrs {
		nodes[i] = dial(addr, "")
		defer nodes[i].Close()
	}
	return each(ctx, nodes, func(ctx context.Context, node *redis.Client) error {
		return until(ctx, "wait for the cluster", func(ctx context.Context) error {
			return clusterOK(ctx, node)
		})
	})
}

// each calls f for all nodes at the same time.
func each(ctx context.Context, nodes []*redis.Client, f func(context.Context, *redis.Client) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, node := range nodes {
		g.Go(func() error { return f(ctx, node) })
	}
	return g.Wait()
}
