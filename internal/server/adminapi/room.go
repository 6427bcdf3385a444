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
	// answerByteCost is how many bytes of memory a byte of a message takes until it is
	// written: as a Go message, and as what it becomes.
	answerByteCost = 14
	// roomStep is how many bytes are charged at once. Fewer would be charged
	// whether there is room or not.
	roomStep = 256 << 10
)

// answerRoom charges an answer to its connection while it is made, since the operator's
// files and assignments say how long it is.
type answerRoom struct {
	ctx context.Context
	// bytes are those of the answer, charged those of the memory it has.
	bytes, charged int
}

// add makes room for a part of an answer that is kept until all of it is made. Its error
// is a status.
func (r *answerRoom) add(part proto.Message) error {
	r.bytes += proto.Size(part)
	if r.bytes > endpoint.MaxAnswer {
		return errLongAnswer
	}
	return r.grow(r.bytes * answerByteCost)
}

// grow raises the charge to bytes in all, if it is less.
func (r *answerRoom) grow(bytes int) error {
	for r.charged < bytes {
		if err := accounts.ConnectionOf(r.ctx).Reserve(r.ctx, roomStep); err != nil {
			return err
		}
		r.charged += roomStep
	}
	return nil
}

// holdWhole makes room for an answer that was made and has charged bytes already. Its
// error is a status.
func holdWhole(ctx context.Context, answer proto.Message, charged int) error {
	r := answerRoom{ctx: ctx, charged: charged}
	return r.grow(proto.Size(answer) * answerByteCost)
}

var errLongAnswer = status.Errorf(codes.ResourceExhausted,
	"the answer would have more than %d bytes, which callers do not read: ask for one rule by its path or entries, or read /rlconfig on this port", endpoint.MaxAnswer)
