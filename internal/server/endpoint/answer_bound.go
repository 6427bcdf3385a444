package endpoint

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/decide"
)

// An answer that is too long for its caller would be lost after it has charged
// limits. So a request whose answer might be too long is refused before.

// MaxAnswer bounds an answer, in bytes. Callers of gRPC read 4 MiB by default.
const MaxAnswer = 4<<20 - 64<<10

// ErrAnswerTooLong refuses a request whose answer might be longer than MaxAnswer.
var ErrAnswerTooLong = status.Errorf(codes.ResourceExhausted,
	"the answer might have more than %d bytes, which callers do not read; nothing was taken: ask about less at once", MaxAnswer)

// StatusesBound returns no less than the bytes that an answer needs for the limits of a
// matched call.
func StatusesBound(c *decide.Call) int {
	const (
		other = 256 // retry-after, the denier, what was granted, headers of one limit
		each  = 128 // of a descriptor's status, and of a limit's
		// of the windows of a limit by calendar, besides the name of its zone
		calendar = 64
	)
	n := other + each*(len(c.Outcomes)+len(c.Hits))
	for i := range c.Outcomes {
		for _, l := range c.Outcomes[i].Limits {
			n += len(l.Name)
			if l.Calendar.Unit != bucket.NoCalendar {
				n += calendar + len(l.Calendar.Zone.String())
			}
		}
	}
	return n
}

// PoliciesBound returns no less than the bytes of an answer's headers. They may name
// each limit, by its name or by the keys of its descriptor.
func PoliciesBound(c *decide.Call, h *settings.Headers) int {
	if h.Style == "" || h.Style == "none" {
		return 0
	}
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
