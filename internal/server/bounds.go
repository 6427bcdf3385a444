package server

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Bounds of a request.
type Bounds struct {
	// Descriptors of a request, entries of a descriptor, and bytes of all the
	// text in a request.
	Descriptors, Entries, Bytes int
	// Takes of one message that has several.
	Takes int
}

// check refuses a request that is beyond the bounds, or that cannot be meant. It
// finds out what each descriptor costs.
func (c *call) check(refunds bool) error {
	if c.domain == "" {
		return invalid("domain is empty; a request names the domain of its limits")
	}
	if len(c.descriptors) == 0 {
		return invalid("descriptors is empty; a request has at least one")
	}
	if n := len(c.descriptors) + c.moreDescriptors; n > c.decider.bounds.Descriptors {
		return invalid("descriptors: found %d, at most %d are allowed (setting grpc.max_descriptors)", n, c.decider.bounds.Descriptors)
	}
	size := len(c.domain)
	for i := range c.descriptors {
		asked := &c.descriptors[i]
		if n := len(asked.entries) + asked.moreEntries; n > c.decider.bounds.Entries {
			return invalid("descriptors[%d].entries: found %d, at most %d are allowed (setting grpc.max_entries)", i, n, c.decider.bounds.Entries)
		}
		if asked.refund && !refunds {
			return status.Errorf(codes.PermissionDenied, "descriptors[%d].is_negative_hits: refunds are not taken here (setting api.refunds)", i)
		}
		if err := asked.own.invalid; err != nil {
			return err
		}
		for _, entry := range asked.entries {
			size += len(entry.Key) + len(entry.Value)
		}
		asked.cost = c.cost(asked)
	}
	if size > c.decider.bounds.Bytes {
		return invalid("the request holds %d bytes of text, at most %d are allowed (setting grpc.max_bytes)", size, c.decider.bounds.Bytes)
	}
	return nil
}

// cost is what a descriptor takes: its own hits, else those of the request, of
// which 0 and unset mean 1.
func (c *call) cost(d *descriptor) int64 {
	hits := uint64(max(1, c.hitsAddend))
	if d.hasHits {
		hits = d.hits
	}
	cost := int64(min(hits, bucket.MaxCost))
	if d.refund {
		return -cost
	}
	return cost
}

// holds is about what the message, the entries, keys and decisions take.
func (c *call) holds() int64 { return int64(4*c.size + 512*(len(c.descriptors)-1)) }

// isFull counts a descriptor that is beyond the bounds. It is only counted, so
// that a request costs no more memory than its bounds allow, and check tells
// the caller how many there were.
func (c *call) isFull() bool {
	if len(c.descriptors) < c.decider.bounds.Descriptors {
		return false
	}
	c.moreDescriptors++
	return true
}

// isFullOf does for the entries of a descriptor that is being read, which begin
// at start, what isFull does for descriptors.
func (c *call) isFullOf(d *descriptor, start int) bool {
	if len(c.entries)-start < c.decider.bounds.Entries {
		return false
	}
	d.moreEntries++
	return true
}

// settleEntries gives each descriptor its part of all entries, which may have
// moved while they were gathered.
func (c *call) settleEntries() {
	rest := c.entries
	for i := range c.descriptors {
		n := len(c.descriptors[i].entries)
		c.descriptors[i].entries, rest = rest[:n:n], rest[n:]
	}
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}
