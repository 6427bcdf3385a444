package redisstore

// turns lets the hash tags of a busy node take turns: a command has one tag, and fewer
// commands with more requests each cost less, for the node and for this daemon. Each
// batch has about half of the tags that wait: those that the batch before left behind,
// and then those whose requests have waited longest.
type turns struct {
	// tags is indexed by tag. It is empty outside a cluster, where a command may have
	// any tags.
	tags []turn
	look uint32 // counts the batches
}

// turn has the looks at which a tag last waited, was in turn, and was left behind.
type turn struct{ waited, came, left uint32 }

// busyShare is how many requests wait per waiting tag, on average, when tags begin to
// take turns. Below it, a later turn would cost a caller more time than it saves
// others.
const busyShare = 2

// next returns a function that reports whether it is a request's turn. It is called
// with the requests in waiting, in this order, for the batch that is now taken from it.
func (t *turns) next(waiting []*request) (inTurn func(*request) bool) {
	t.look++
	look, waits, left := t.look, 0, 0
	if len(t.tags) == 0 || len(waiting) < 4*busyShare {
		return func(*request) bool { return true }
	}
	for _, r := range waiting {
		if tag := &t.tags[r.tag]; tag.waited != look {
			tag.waited = look
			waits++
			if tag.isLeft(look) {
				left++
			}
		}
	}
	if len(waiting) < busyShare*waits {
		return func(*request) bool { return true }
	}
	free := (waits+1)/2 - left
	return func(r *request) bool {
		tag := &t.tags[r.tag]
		switch {
		case tag.came == look:
		case tag.isLeft(look):
			tag.came = look
		case free > 0 && tag.left != look:
			tag.came = look
			free--
		default:
			tag.left = look
			return false
		}
		return true
	}
}

// isLeft reports whether the batch before this look left the tag behind.
func (t *turn) isLeft(look uint32) bool { return t.left > 0 && t.left == look-1 }
