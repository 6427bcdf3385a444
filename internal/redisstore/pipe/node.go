package pipe

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/logthin"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
)

// node is what is known of a server that decides. The node at redisconn.AnyNode stands
// for all servers: outside a cluster, and until the topology of a cluster is known.
type node struct {
	address string
	breaker *breaker
	calls   prometheus.Counter // commands
	clock   clockWatch

	log                     *slog.Logger
	downLines, refusalLines logthin.Thinner
	// isLoggedDown says whether the last line about the node was that it is down. The
	// breaker's lock guards it until the node is closed.
	isLoggedDown bool
}

// newNode returns a node; probe asks it whether it answers.
func newNode(address string, m *metrics, log *slog.Logger, probe func(context.Context) error) *node {
	n := &node{address: address, log: log}
	n.calls = m.calls.WithLabelValues(n.name())
	n.breaker = newBreaker(probe, n.logChange)
	return n
}

// name is the node's name in logs and labels.
func (n *node) name() string {
	if n.address == redisconn.AnyNode {
		return "redis"
	}
	return n.address
}

// logChange logs that the node does not answer, because of an error, or that it answers
// again, if because is nil.
func (n *node) logChange(because error) {
	if because == nil {
		if n.isLoggedDown {
			n.log.Info("redis: the node answers again", "node", n.name())
		}
		n.isLoggedDown = false
		return
	}
	if _, due := n.downLines.Due(time.Now(), logEvery); due {
		n.log.Warn("redis: the node does not answer; until it does, failure.mode answers for its keys", "node", n.name(), "error", because)
		n.isLoggedDown = true
	}
}

// logGone logs that a node that was logged as down was closed, since other nodes now
// have its keys.
func (n *node) logGone() {
	if n.isLoggedDown {
		n.log.Info("redis: other nodes have the keys of the node now", "node", n.name())
	}
}

// logRefusal logs that the node replied to a command with an error, such as that it has
// no memory left. It is still asked: it may decide requests that write nothing.
func (n *node) logRefusal(err error) {
	if _, due := n.refusalLines.Due(time.Now(), logEvery); due {
		n.log.Warn("redis: the node refuses to decide; where it does, failure.mode answers", "node", n.name(), "error", err)
	}
}

// recordClock notes what the node's clock was during a command that was sent at start,
// and whose reply took that long.
func (n *node) recordClock(clock, start time.Time, took time.Duration) {
	offset, wrong, right := n.clock.record(clock, start, took)
	direction := "ahead"
	if offset < 0 {
		direction = "behind"
	}
	switch {
	case wrong:
		n.log.Warn("redis: the node's clock is not this machine's: one of the two is wrong", "node", n.name(), direction, timespan.Format(offset.Abs()))
	case right:
		n.log.Info("redis: the node's clock is this machine's again", "node", n.name())
	}
}
