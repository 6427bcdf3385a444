//go:build unix

package redistest

import (
	"context"
	"testing"
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
	ctx, cancel := context.WithTimeout(t.Context(), waitDeadline)
	defer cancel()
	n := sharedMasters * (1 + replicas)
	nodeTimeout := sharedNodeTimeout
	if replicas > 0 {
		nodeTimeout = ownNodeTimeout
	}
	ps, err := startAll(ctx, n, append(clusterArgs(nodeTimeout), args...)...)
	check(t, err)
	c := &OwnCluster{t: t}
	for i, p := range ps {
		if i < sharedMasters {
			c.Masters = append(c.Masters, newServer(t, p))
		} else {
			c.Replicas = append(c.Replicas, newServer(t, p))
		}
	}
	check(t, formCluster(ctx, addrsOf(ps), replicas))
	return c
}

// Addrs returns the addresses of all nodes, of the masters first.
func (c *OwnCluster) Addrs() []string {
	var addrs []string
	for _, s := range c.servers() {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// WaitOK waits until every running node says that the cluster serves all slots.
// Right after a node goes down the others still say that.
func (c *OwnCluster) WaitOK() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), waitDeadline)
	defer cancel()
	var addrs []string
	for _, s := range c.servers() {
		if s.p.running() {
			addrs = append(addrs, s.Addr())
		}
	}
	check(c.t, waitClusterOK(ctx, addrs))
}

func (c *OwnCluster) servers() []*Server {
	return append(append([]*Server(nil), c.Masters...), c.Replicas...)
}
