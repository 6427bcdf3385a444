package redisconn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// endpoints completes the addresses that a cluster announces for its nodes. With
// cluster-preferred-endpoint-type unknown-endpoint they have only a port; the client by
// itself would then read no map of the slots, and follow redirections to its own machine.
type endpoints struct {
	configured []string
	// host is the host whose node last sent a map of the slots. A redirection
	// without a host means the host that sent it. But in a map without hosts all
	// nodes have the same host, so this one serves too.
	host     atomic.Pointer[string]
	log      *slog.Logger
	nameless sync.Once // logs that a node announces no hostname

	mu     sync.Mutex
	failed map[string]error // by address, since a node last sent a map
}

// noHostname is announced by a node that should announce a hostname and has none.
const noHostname = "?"

// newClient returns the client of one node.
func (e *endpoints) newClient(o *redis.Options) *redis.Client {
	c := redis.NewClient(o)
	c.AddHook(slotsHook{e, o.Addr})
	return c
}

// dialer returns dial, for addresses that the cluster announces.
func (e *endpoints) dialer(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		complete := e.complete(addr)
		conn, err := dial(ctx, network, complete)
		if u, ok := conn.(unconnected); ok && !slices.Contains(e.configured, complete) {
			return unconnected{fmt.Errorf("%w (the address that the cluster announces for a node)", u.err)}, nil
		}
		return conn, err
	}
}

// complete returns the address to dial.
func (e *endpoints) complete(addr string) string {
	if host, port, err := net.SplitHostPort(addr); err == nil && host == "" {
		if last := e.host.Load(); last != nil {
			return net.JoinHostPort(*last, port)
		}
	}
	return addr
}

// record notes whether the node at addr sent a map of the slots, or its error.
func (e *endpoints) record(addr string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err == nil:
		e.failed = nil // one that answers is enough
	case e.failed == nil:
		e.failed = map[string]error{addr: err}
	default:
		e.failed[addr] = err
	}
}

// refusal returns the error of a node that refuses to send a map, or nil.
func (e *endpoints) refusal(o *Options) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, addr := range slices.Sorted(maps.Keys(e.failed)) {
		if err := o.explain(addr, e.failed[addr]); errors.Is(err, ErrRefused) {
			return err
		}
	}
	return nil
}

// slotsHook reads the reply of the node at addr to CLUSTER SLOTS.
type slotsHook struct {
	endpoints *endpoints
	addr      string
}

// DialHook implements redis.Hook.
func (slotsHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (slotsHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (h slotsHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		asked, ok := cmd.(*redis.ClusterSlotsCmd)
		if !ok {
			return next(ctx, cmd)
		}
		reply := redis.NewSliceCmd(ctx, cmd.Args()...)
		err := next(ctx, reply)
		if err == nil {
			err = h.checkState(ctx, next)
		}
		h.endpoints.record(h.addr, err)
		if err != nil {
			return err
		}
		slots, err := h.endpoints.slots(h.addr, reply.Val())
		if err != nil {
			return fmt.Errorf("the reply of %s to CLUSTER SLOTS: %w", h.addr, err)
		}
		asked.SetVal(slots)
		return nil
	}
}

// checkState returns an error if the node says that its cluster has failed, as one that was
// cut off from the others does. It still has itself as master in its map, so the client
// must ask another node.
func (h slotsHook) checkState(ctx context.Context, next redis.ProcessHook) error {
	info := redis.NewStringCmd(ctx, "cluster", "info")
	err := next(ctx, info)
	if err == nil && strings.Contains(info.Val(), "cluster_state:fail") {
		err = fmt.Errorf("CLUSTERDOWN: %s says cluster_state:fail", h.addr)
	}
	return err
}

// slots decodes the reply of the node at addr to CLUSTER SLOTS: ranges of slots, each
// with its first and last slot and its nodes, master first.
func (e *endpoints) slots(addr string, reply []any) ([]redis.ClusterSlot, error) {
	host, _, err := net.SplitHostPort(e.complete(addr))
	if err != nil {
		return nil, err
	}
	e.host.Store(&host)
	slots := make([]redis.ClusterSlot, 0, len(reply))
	for i, r := range reply {
		fields, ok := r.([]any)
		if !ok || len(fields) < 2 {
			return nil, fmt.Errorf("range %d is %v, where two slots and their nodes are expected", i, r)
		}
		first, ok1 := fields[0].(int64)
		last, ok2 := fields[1].(int64)
		if !ok1 || !ok2 {
			return nil, fmt.Errorf("range %d is from %v to %v, where numbers are expected", i, fields[0], fields[1])
		}
		slot := redis.ClusterSlot{Start: int(first), End: int(last)}
		for _, f := range fields[2:] {
			node, err := e.node(host, f)
			if err != nil {
				return nil, err
			}
			slot.Nodes = append(slot.Nodes, node)
		}
		slots = append(slots, slot)
	}
	return slots, nil
}

// node decodes a node: its endpoint, port and ID, and from Redis 7 on a list of
// further names and values.
func (e *endpoints) node(host string, reply any) (redis.ClusterNode, error) {
	fields, ok := reply.([]any)
	if !ok || len(fields) < 2 {
		return redis.ClusterNode{}, fmt.Errorf("a node is %v, where its endpoint and port are expected", reply)
	}
	port, ok := fields[1].(int64)
	if !ok {
		return redis.ClusterNode{}, fmt.Errorf("a node's port is %v, where a number is expected", fields[1])
	}
	var node redis.ClusterNode
	if len(fields) > 2 {
		node.ID, _ = fields[2].(string)
	}
	endpoint, _ := fields[0].(string)
	switch endpoint {
	case "": // or nil: the host that was asked
		endpoint = host
	case noHostname:
		endpoint = e.withoutHostname(fields)
	}
	node.Addr = net.JoinHostPort(endpoint, strconv.FormatInt(port, 10))
	return node, nil
}

// withoutHostname returns the IP address of a node that should announce a hostname
// and has none.
func (e *endpoints) withoutHostname(node []any) string {
	e.nameless.Do(func() {
		e.log.Warn("redis: a node of the cluster is to announce a hostname and has none; its IP address is used, and redirections to it cannot be followed: set cluster-announce-hostname, or cluster-preferred-endpoint-type to ip",
			"node", node[2:])
	})
	if len(node) > 3 {
		more, _ := node[3].([]any)
		for i := 0; i+1 < len(more); i += 2 {
			if ip, ok := more[i+1].(string); ok && more[i] == "ip" && ip != "" {
				return ip
			}
		}
	}
	return noHostname
}
