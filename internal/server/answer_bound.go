package server

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/server/decide"
)

// An answer that its caller cannot read would be lost after it has charged
// limits. So one that might be too long is refused before.

// answerMost is how long an answer is at most: callers of gRPC read 4 MiB unless
// they are told otherwise.
const answerMost = 4<<20 - 64<<10

var errAnswerTooLong = status.Errorf(codes.ResourceExhausted,
	"the answer might have more than %d bytes, which callers do not read; nothing was taken: ask about less at once", answerMost)

// boundOf returns the bound of an API's responses.
func boundOf(h *settings.Headers, metadata bool) func(*decide.Call) int {
	hasPolicies := h.Style != "" && h.Style != "none"
	return func(c *decide.Call) int {
		n := statusesBound(c)
		if hasPolicies {
			n += policiesBound(c)
		}
		if metadata {
			n += metadataBound(c)
		}
		return n
	}
}

// statusesBound is for what is told of each limit.
func statusesBound(c *decide.Call) int {
	const (
		other = 256 // retry-after, the denier, headers of one limit
		each  = 128 // of a descriptor's status, and of a limit's
	)
	n := other + each*(len(c.Outcomes)+len(c.Hits))
	for i := range c.Outcomes {
		for _, l := range c.Outcomes[i].Limits {
			n += len(l.Name)
		}
	}
	return n
}

// policiesBound is for the headers that name each limit, in each of which one
// may have the keys of its descriptor for a name.
func policiesBound(c *decide.Call) int {
	const each = 160
	n := 0
	for i := range c.Outcomes {
		names := 0
		for _, e := range c.Descriptors[i].Entries {
			names += len(e.Key) + 1
		}
		for _, l := range c.Outcomes[i].Limits {
			n += each + 4*max(len(l.Name), names) // twice, with each character escaped
		}
	}
	return n
}

// metadataBound is for the metadata that tells what was asked.
func metadataBound(c *decide.Call) int {
	const (
		each     = 256 // of a descriptor
		entry    = 24
		longText = 3 // bytes for one that is not UTF-8
	)
	n := each + len(c.Domain)
	for i := range c.Descriptors {
		n += each
		for _, e := range c.Descriptors[i].Entries {
			n += entry + len(e.Key) + longText*len(e.Value)
		}
		if r := c.Outcomes[i].Rule; r != nil && r.Metadata != nil {
			n += valueBound(r.Metadata)
		}
	}
	return n
}

// valueBound is no less than the bytes of a value of a rule's metadata.
func valueBound(v any) int {
	const head = 16 // of a field and its value, with their lengths
	n := head
	switch v := v.(type) {
	case string:
		n += len(v)
	case []any:
		for _, item := range v {
			n += valueBound(item)
		}
	case map[string]any:
		for k, item := range v {
			n += head + len(k) + valueBound(item)
		}
	}
	return n
}
