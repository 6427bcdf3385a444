//go:build unix

package redistest

import (
	"context"
	"strconv"

	"golang.org/x/sync/errgroup"
)

// openPath starts the redis-server on PATH.
func openPath(ctx context.Context, k kind) (source, error) {
	bin, err := lookRedis()
	if err != nil {
		return source{}, err
	}
	var ps []*process
	if k == kindSingle {
		ps, err = startAll(ctx, 1)
	} else {
		ps, err = startAll(ctx, sharedMasters, clusterArgs(sharedNodeTimeout)...)
	}
	if err != nil {
		return source{}, err
	}
	if k == kindCluster {
		if err := formCluster(ctx, addrsOf(ps), 0); err != nil {
			discardAll(ps)
			return source{}, err
		}
	}
	return source{addrs: addrsOf(ps), from: bin, stop: func() { discardAll(ps) }}, nil
}

// startAll starts n processes at a time: all or none.
func startAll(ctx context.Context, n int, args ...string) ([]*process, error) {
	ps := make([]*process, n)
	g, ctx := errgroup.WithContext(ctx)
	for i := range ps {
		g.Go(func() (err error) {
			ps[i], err = startProcess(ctx, args...)
			return err
		})
	}
	if err := g.Wait(); err != nil {
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

// clusterArgs makes a redis-server a cluster node that holds another for dead
// after nodeTimeout milliseconds.
func clusterArgs(nodeTimeout int) []string {
	return []string{
		"--cluster-enabled", "yes",
		"--cluster-node-timeout", strconv.Itoa(nodeTimeout),
		// However old a replica's data is, it may become master.
		"--cluster-replica-validity-factor", "0",
	}
}
