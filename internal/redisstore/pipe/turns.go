package pipe

// turns lets the hash tags of a busy node take turns: a command has one tag, and fewer
// commands with more requests each cost less, for the node and for this daemon. Each
// batch has a part of the tags that wait, those whose requests have waited longest. The
// busier the node, the smaller is this part.
type turns struct {
	// tags is indexed by tag. It is empty outside a cluster, where a command may have
	// any tags.
	tags []turn
	look uint32 // counts the batches
}

// turn has the looks at which a tag last waited, and was in turn.
type turn struct{ waited, came uint32 }

const (
	// busyShare is how many requests wait per waiting tag, on average, when tags begin to
	// take turns. Below it, a later turn would cost a caller more time than it saves
	// others.
	busyShare = 2
	// maxRounds is the most batches over which the waiting tags are spread.
	maxRounds = 4
)

// next returns a function that reports whether it is a request's turn. It is called
// with the requests in waiting, in this order, for the batch that is now taken from it.
func (t *turns) next(waiting []*Request) (inTurn func(*Request) bool) {
	t.look++
	look, waits := t.look, 0
	if len(t.tags) == 0 || len(waiting) < 4*busyShare {
		return func(*Request) bool { return true }
	}
	for _, r := range waiting {
		if tag := &t.tags[r.Tag]; tag.waited != look {
			tag.waited = look
			waits++
		}
	}
	rounds := min(1+len(waiting)/(busyShare*waits), maxRounds)
	free := (waits + rounds - 1) / rounds
	return func(r *Request) bool {
		if tag := &t.tags[r.Tag]; tag.came != look {
			if free == 0 {
				return false
			}
			free--
			tag.came = look
		}
		return true
	}
}
