package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/logthin"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

// node is a server that decides, with its batcher and its breaker. The node at
// redisconn.AnyNode stands for all servers: outside a cluster, and until the
// topology of a cluster is known.
type node struct {
	address string
	batcher *batcher
	breaker *breaker
	calls   prometheus.Counter // commands
	clock   clockWatch

	downLines, refusalLines logthin.Thinner
	// isLoggedDown says whether the last line about the node was that it is down. The
	// breaker's lock guards it until the node is closed.
	isLoggedDown bool
}

const (
	// topologyLook is how often the store asks the client which node has which
	// tag. The client learns that from the cluster.
	topologyLook = time.Second
	// topologyLookDown is topologyLook while a node does not answer.
	topologyLookDown = 100 * time.Millisecond
)

func (s *Store) newNode(address string) *node {
	n := &node{address: address}
	n.calls = s.metrics.calls.WithLabelValues(n.name())
	n.breaker = newBreaker(
		func(ctx context.Context) error { return s.probe(ctx, n) },
		func(because error) { s.logChange(n, because) })
	n.batcher = newBatcher(s, n)
	return n
}

// probe asks a node through a key of one of its tags, since the keys of other tags are
// at other nodes. A node without tags is not asked: no request goes to it.
func (s *Store) probe(ctx context.Context, n *node) error {
	tag := slices.Index(*s.byTag.Load(), n)
	if tag < 0 {
		return nil
	}
	return s.ping(ctx, tag)
}

// name is the node's name in logs and labels.
func (n *node) name() string {
	if n.address == redisconn.AnyNode {
		return "redis"
	}
	return n.address
}

func (n *node) close() {
	n.batcher.close()
	n.breaker.close()
}

// nodeOf returns the node that has the keys of a tag, as far as the topology is known.
func (s *Store) nodeOf(tag int) *node { return (*s.byTag.Load())[tag] }

// startTopology makes one node for all tags, and follows the topology of a cluster.
func (s *Store) startTopology() {
	byTag := slices.Repeat([]*node{s.newNode(redisconn.AnyNode)}, len(s.tags))
	s.byTag.Store(&byTag)
	if cluster := s.redis.Cluster(); cluster != nil {
		s.background.Go(func() { s.followTopology(cluster) })
	}
}

// followTopology keeps the topology up to date until the store is closed.
func (s *Store) followTopology(cluster *redis.ClusterClient) {
	for {
		s.lookTopology(cluster)
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(s.lookAgainAfter()):
		case <-s.topologyDoubts:
			// Meanwhile the client asks the cluster.
			select {
			case <-s.ctx.Done():
				return
			case <-time.After(topologyLookDown):
			}
		}
	}
}

func (s *Store) lookAgainAfter() time.Duration {
	for _, n := range s.nodes() {
		if n.breaker.isOpen() {
			return topologyLookDown
		}
	}
	return topologyLook
}

// lookTopology notes which node has which tag, if one has moved.
func (s *Store) lookTopology(cluster *redis.ClusterClient) {
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
	defer cancel()
	addresses, err := s.masters(ctx, cluster)
	if err != nil {
		return // the old topology is the best guess
	}
	old := *s.byTag.Load()
	nodes := make(map[string]*node)
	for _, n := range old {
		nodes[n.address] = n
	}
	byTag := make([]*node, len(s.tags))
	for i, address := range addresses {
		if nodes[address] == nil {
			nodes[address] = s.newNode(address)
		}
		byTag[i] = nodes[address]
	}
	if slices.Equal(old, byTag) {
		return
	}
	s.byTag.Store(&byTag)
	for _, n := range nodes {
		if !slices.Contains(byTag, n) {
			n.close()
			s.logGone(n)
			// Otherwise there would be a series for every address ever.
			s.metrics.calls.DeleteLabelValues(n.name())
		}
	}
}

// reloadTopology makes the client look for a cluster's new masters if err may mean that
// there are some, and makes the topology follow what it finds.
func (s *Store) reloadTopology(ctx context.Context, err error) {
	if !s.redis.ReloadAfter(ctx, err) {
		return
	}
	select {
	case s.topologyDoubts <- struct{}{}:
	default:
	}
}

// masters returns, by tag, the address of its master as the client knows it.
func (s *Store) masters(ctx context.Context, cluster *redis.ClusterClient) ([]string, error) {
	addresses := make([]string, len(s.tags))
	for i, tag := range s.tags {
		master, err := cluster.MasterForKey(ctx, tag)
		if err != nil {
			return nil, err
		}
		addresses[i] = master.Options().Addr
	}
	return addresses, nil
}

// nodes returns the nodes that have tags.
func (s *Store) nodes() []*node {
	var nodes []*node
	for _, n := range *s.byTag.Load() {
		if !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// nodeLogEvery is the interval of log lines about a node that is down, constantly or
// now and then, that refuses, or whose clock is wrong; each kind has an interval of its
// own.
const nodeLogEvery = time.Minute

// logChange logs that a node does not answer, because of an error, or that it answers
// again, if because is nil.
func (s *Store) logChange(n *node, because error) {
	if because == nil {
		if n.isLoggedDown {
			s.log.Info("redis: the node answers again", "node", n.name())
		}
		n.isLoggedDown = false
		return
	}
	if _, due := n.downLines.Due(time.Now(), nodeLogEvery); due {
		s.log.Warn("redis: the node does not answer; until it does, failure.mode answers for its keys", "node", n.name(), "error", because)
		n.isLoggedDown = true
	}
}

// logGone logs that a node that was logged as down was closed, since other nodes now
// have its keys.
func (s *Store) logGone(n *node) {
	if n.isLoggedDown {
		s.log.Info("redis: other nodes have the keys of the node now", "node", n.name())
	}
}

// logRefusal logs that a node replied to a command with an error, such as that it has
// no memory left. The node is still asked: it may decide requests that write nothing.
func (s *Store) logRefusal(n *node, err error) {
	if _, due := n.refusalLines.Due(time.Now(), nodeLogEvery); due {
		s.log.Warn("redis: the node refuses to decide; where it does, failure.mode answers", "node", n.name(), "error", err)
	}
}
