package pipe

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

// topology has a queue for each node, and knows which node has the keys of each tag. That
// is only a guess, used for batching: the client sends each command to the node that has
// its slot, so a wrong guess costs no more than a batch that goes to two servers.
type topology struct {
	wire  *wire
	byTag atomic.Pointer[[]*queue]

	ctx       context.Context // ends following
	cancel    context.CancelFunc
	following sync.WaitGroup
}

const (
	// topologyLook is how often the topology asks the client which node has which tag.
	// The client learns that from the cluster.
	topologyLook = time.Second
	// topologyLookDown is topologyLook while a node does not answer.
	topologyLookDown = 100 * time.Millisecond
)

// newTopology returns a topology of one node for all tags, which follows that of a cluster.
func newTopology(w *wire) *topology {
	t := &topology{wire: w}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	byTag := slices.Repeat([]*queue{t.newQueue(redisconn.AnyNode)}, len(w.Tags))
	t.byTag.Store(&byTag)
	if cluster := w.conn.Cluster(); cluster != nil {
		t.following.Go(func() { t.follow(cluster) })
	}
	return t
}

// close decides or fails the waiting requests, and ends all goroutines.
func (t *topology) close() {
	t.cancel()
	t.following.Wait()
	for _, q := range t.queues() {
		q.close()
	}
}

// newQueue returns the queue of a node. The node is probed through a key of one of its
// tags, since the keys of other tags are at other nodes. One without tags is not asked: no
// request goes to it.
func (t *topology) newQueue(address string) *queue {
	var q *queue
	n := newNode(address, t.wire.metrics, t.wire.Log, func(ctx context.Context) error {
		tag := slices.Index(*t.byTag.Load(), q)
		if tag < 0 {
			return nil
		}
		r := t.wire.Probe(tag)
		t.wire.alone(r).send(ctx)
		return r.Err
	})
	q = newQueue(t.wire, n)
	return q
}

// queueOf returns the queue of the node that has the keys of a tag.
func (t *topology) queueOf(tag int) *queue { return (*t.byTag.Load())[tag] }

// queues returns the queues of the nodes that have tags.
func (t *topology) queues() []*queue {
	var queues []*queue
	for _, q := range *t.byTag.Load() {
		if !slices.Contains(queues, q) {
			queues = append(queues, q)
		}
	}
	return queues
}

// follow keeps the topology up to date until it is closed.
func (t *topology) follow(cluster *redis.ClusterClient) {
	for {
		t.look(cluster)
		select {
		case <-t.ctx.Done():
			return
		case <-time.After(t.lookAgainAfter()):
		case <-t.wire.doubts:
			// Meanwhile the client asks the cluster.
			select {
			case <-t.ctx.Done():
				return
			case <-time.After(topologyLookDown):
			}
		}
	}
}

func (t *topology) lookAgainAfter() time.Duration {
	for _, q := range t.queues() {
		if q.node.breaker.isOpen.Load() {
			return topologyLookDown
		}
	}
	return topologyLook
}

// look notes which node has which tag, if one has moved.
func (t *topology) look(cluster *redis.ClusterClient) {
	ctx, cancel := context.WithTimeout(t.ctx, t.wire.conn.Timeout())
	defer cancel()
	addresses, err := t.masters(ctx, cluster)
	if err != nil {
		return // the old topology is the best guess
	}
	old := *t.byTag.Load()
	queues := make(map[string]*queue)
	for _, q := range old {
		queues[q.node.address] = q
	}
	byTag := make([]*queue, len(t.wire.Tags))
	for i, address := range addresses {
		if queues[address] == nil {
			queues[address] = t.newQueue(address)
		}
		byTag[i] = queues[address]
	}
	if slices.Equal(old, byTag) {
		return
	}
	t.byTag.Store(&byTag)
	for _, q := range queues {
		if !slices.Contains(byTag, q) {
			q.close()
			q.node.logGone()
			// Otherwise there would be a series for every address ever.
			t.wire.metrics.calls.DeleteLabelValues(q.node.name())
		}
	}
}

// masters returns, by tag, the address of its master as the client knows it.
func (t *topology) masters(ctx context.Context, cluster *redis.ClusterClient) ([]string, error) {
	addresses := make([]string, len(t.wire.Tags))
	for i, tag := range t.wire.Tags {
		master, err := cluster.MasterForKey(ctx, tag)
		if err != nil {
			return nil, err
		}
		addresses[i] = master.Options().Addr
	}
	return addresses, nil
}
