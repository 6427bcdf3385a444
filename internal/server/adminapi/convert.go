package adminapi

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/server/assignmsg"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

func moment(micros int64) *timestamppb.Timestamp {
	if micros == 0 {
		return nil
	}
	return timestamppb.New(time.UnixMicro(micros))
}

// subjectOf returns the subject of a request, or an INVALID_ARGUMENT that says what
// is wrong with it.
func subjectOf(domain string, entries []*ratelimitv1.Entry) (assign.Subject, error) {
	s := assign.Subject{Domain: domain, Entries: assignmsg.Entries(entries)}
	if err := s.Check(); err != nil {
		return s, endpoint.Invalid("%v", err)
	}
	return s, nil
}

// describe returns what an assignment says for a line of the log: the base, then each
// layer with its end.
func describe(a *assign.Assignment) string {
	if a == nil {
		return "nothing"
	}
	var all []string
	if !a.Base.IsEmpty() {
		all = append(all, describeTerms(&a.Base.Terms))
	}
	for i := range a.Layers {
		l := &a.Layers[i]
		all = append(all, "until "+time.UnixMicro(l.Until).UTC().Format(time.RFC3339)+" "+describeTerms(&l.Terms))
	}
	return strings.Join(all, "; ")
}

func describeTerms(t *assign.Terms) string {
	var parts []string
	if t.Blocked {
		parts = append(parts, "blocked")
	}
	if t.Unlimited {
		parts = append(parts, "unlimited")
	}
	for _, n := range t.Numbers {
		text := fmt.Sprintf("limit %q: %d requests", n.Limit, n.Requests)
		if n.Period != 0 {
			text += " in " + n.Period.String()
		}
		if n.Burst != 0 {
			text += fmt.Sprintf(" with burst %d", n.Burst)
		}
		parts = append(parts, text)
	}
	if t.Plan != "" {
		parts = append(parts, "plan "+t.Plan)
	}
	if t.Calendar != (assign.Calendar{}) {
		parts = append(parts, t.Calendar.String())
	}
	return strings.Join(parts, ", ")
}

// A page's token is the store's in letters, so that it can stand in a URL.

func pageToken(next string) string { return base64.RawURLEncoding.EncodeToString([]byte(next)) }

func readPageToken(token string) (string, error) {
	after, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(after) > 4<<10 {
		return "", endpoint.Invalid("%v", assign.ErrPageToken)
	}
	return string(after), nil
}

// pageSize returns how many items a page may have.
func pageSize(asked uint32, byDefault, maxSize int) (int, error) {
	switch {
	case asked == 0:
		return byDefault, nil
	case asked > uint32(maxSize):
		return 0, endpoint.Invalid("page_size: found %d; allowed: 1 to %d, or 0 for %d", asked, maxSize, byDefault)
	}
	return int(asked), nil
}

// A lister makes an answer that is a list. It calls add with each item, ends with the
// error of add if there is one, and returns the answer without the items.
type lister[Q, I, A any] func(ctx context.Context, q *Q, add func(*I) error) (*A, error)

// collected returns an answer with its items, which are bounded in all.
func collected[Q, I, A any](ctx context.Context, q *Q, list lister[Q, I, A], put func(*A, []*I)) (*A, error) {
	bytes := 0
	var items []*I
	answer, err := list(ctx, q, func(item *I) error {
		if bytes += proto.Size(any(item).(proto.Message)); bytes > endpoint.MaxAnswer {
			return errLongAnswer
		}
		items = append(items, item)
		return nil
	})
	if err != nil {
		return nil, err
	}
	put(answer, items)
	return answer, nil
}

var errLongAnswer = status.Errorf(codes.ResourceExhausted,
	"the answer would have more than %d bytes, which callers do not read: ask for one rule by its path or entries, or read /rlconfig on this port", endpoint.MaxAnswer)
