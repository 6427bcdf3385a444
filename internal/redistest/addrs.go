//go:build unix

package redistest

import (
	"context"
	"fmt"
	"strings"
)

// openAddrs picks from list, the value of REDIS_ADDRS, the servers of kind k.
func openAddrs(ctx context.Context, k kind, list string) (source, error) {
	if list == "" {
		return source{}, fmt.Errorf("%s is not set: %w", envAddrs, errUnavailable)
	}
	var single, nodes []string
	for addr := range strings.SplitSeq(list, ",") {
		addr = strings.TrimSpace(addr)
		if addr == "" {
			continue
		}
		clustered, err := isClusterNode(ctx, addr)
		if err != nil {
			return source{}, fmt.Errorf("%s: %w", envAddrs, err)
		}
		if clustered {
			nodes = append(nodes, addr)
		} else {
			single = append(single, addr)
		}
	}
	switch {
	case k == kindSingle && len(single) > 0:
		return source{addrs: single[:1], from: envAddrs}, nil
	case k == kindCluster && len(nodes) > 0:
		if err := waitClusterOK(ctx, nodes); err != nil {
			return source{}, fmt.Errorf("%s: %w", envAddrs, err)
		}
		return source{addrs: nodes, from: envAddrs}, nil
	}
	return source{}, fmt.Errorf("a %s in %s is %w", k, envAddrs, errUnavailable)
}

func isClusterNode(ctx context.Context, addr string) (bool, error) {
	if err := knock(ctx, addr); err != nil {
		return false, err
	}
	c := dial(addr, "")
	defer c.Close()
	info, err := c.Info(ctx, "cluster").Result()
	if err != nil {
		return false, fmt.Errorf("INFO of %s: %w", addr, err)
	}
	return infoField(info, "cluster_enabled") == "1", nil
}
