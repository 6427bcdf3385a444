package adminapi

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server/accounts"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
)

const (
	// answerByteCost is what a byte of a message about rules takes until it is
	// written, in bytes: 5 as a message, and 4 twice while it becomes JSON.
	answerByteCost = 14
	// roomStep is how many bytes are charged at once. Fewer would be charged
	// whether there is room or not.
	roomStep = 256 << 10
)

// answerRoom charges an answer about rules to its connection while it is made, since
// the operator's file says how long it is.
type answerRoom struct {
	ctx context.Context
	// bytes are those of the answer, charged those of the memory it has.
	bytes, charged int
}

// add makes room for a part of the answer. Its error is a status.
func (r *answerRoom) add(part proto.Message) error {
	r.bytes += proto.Size(part)
	if r.bytes > endpoint.AnswerMost {
		return errLongAnswer
	}
	for r.charged < r.bytes*answerByteCost {
		if err := accounts.ConnectionOf(r.ctx).Reserve(r.ctx, roomStep); err != nil {
			return err
		}
		r.charged += roomStep
	}
	return nil
}

var errLongAnswer = status.Errorf(codes.ResourceExhausted,
	"the answer would have more than %d bytes, which callers do not read: ask for one rule by its path or entries, or read /rlconfig on this port", endpoint.AnswerMost)
