package adminapi

import (
	"encoding/base64"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
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
func (a *API) subjectOf(domain string, entries []*ratelimitv1.Entry) (assign.Subject, error) {
	s := assign.Subject{Domain: domain, Entries: assignmsg.Entries(entries)}
	if err := s.Check(); err != nil {
		return s, endpoint.Invalid("%v", err)
	}
	return a.known(s), nil
}

// counted returns a subject with its addresses as they are counted by the rules in force.
func (a *API) counted(s assign.Subject) assign.Subject {
	if rules := a.Live.Rules(); rules != nil && rules.HasDomain(s.Domain) {
		s.Entries = rules.Domain(s.Domain).Counted(s.Entries)
	}
	return s
}

// known is counted, unless something is assigned to the very entries, from the time of
// other rules: then it can be seen and removed.
func (a *API) known(s assign.Subject) assign.Subject {
	if a.Assignments != nil && a.held(s) != nil {
		return s
	}
	return a.counted(s)
}

// logged returns an assignment for a line of the log, in the JSON of the API, without the
// fields that it has no value for.
func logged(a *assign.Assignment) string {
	short := endpoint.JSON{MarshalOptions: protojson.MarshalOptions{UseProtoNames: true}, IsCompact: true}
	text, err := short.Marshal(assignmsg.Show(a))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
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

var errLongAnswer = status.Errorf(codes.ResourceExhausted,
	"the answer would have more than %d bytes, which callers do not read: ask for one rule by its path or entries, or read /rlconfig on this port", endpoint.MaxAnswer)
