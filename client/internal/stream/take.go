package stream

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ratelimitd/ratelimitd/proto/wire"
)

// Take is a request in progress. The goroutine that asks owns it, except while it is
// among the takes of a stream: then whichever goroutine removes it from them owns it. It
// may be reused after its answer.
type Take struct {
	// Request is a TakeRequest, or a SettleRequest if IsSettlement is set. If IsRelease is
	// set, the slots of the holders in the TakeRequest are freed.
	Request                 []byte
	IsSettlement, IsRelease bool
	// Trace is the span that asks, if it is sampled; otherwise it is empty.
	Trace Traceparent
	// Answer is the TakeResponse, SettleResponse or ReleaseResponse, if there is no error.
	Answer []byte

	err   error
	done  chan struct{} // gets one value once there is an answer or an error
	begun time.Time
	timer *time.Timer // of the whole take, whatever streams it tries
}

// NewTake returns a take without a request.
func NewTake() *Take {
	k := &Take{done: make(chan struct{}, 1), timer: time.NewTimer(0)}
	k.timer.Stop()
	return k
}

func (k *Take) begin(timeout time.Duration) {
	k.begun, k.err = time.Now(), nil
	k.timer.Reset(timeout)
}

var (
	// errUndecided is the error of a request that no daemon read.
	errUndecided = errors.New("client: the daemons stop")
	errTimeout   = status.Error(codes.DeadlineExceeded, "client: no answer in time")
	errCrowded   = status.Error(codes.ResourceExhausted, "client: too many requests wait for the daemon")
	errNoResult  = errors.New("client: the daemon's answer holds no result")
)

// The fields of the messages of a stream in proto/ratelimit/v1/ratelimit.proto. They are
// encoded and decoded by hand here, because generated messages would cost more than the
// rest of a request.
const (
	// TakeStreamRequest and its NumberedTake
	requestTakes    = 1
	numberedNumber  = 1
	numberedTake    = 2
	numberedTrace   = 3
	numberedRelease = 4
	numberedSettle  = 5
	// TakeStreamResponse, its NumberedResult, and the TakeResult of that
	responseResults  = 1
	resultNumber     = 1
	resultResult     = 2
	takeResultAnswer = 1
	takeResultError  = 2
	takeResultSettle = 3
	takeResultFreed  = 4
	// Error
	errorCode    = 1
	errorMessage = 2
)

// Bounds of one message. A daemon accepts larger ones, unless its settings are very
// narrow.
const (
	maxTakes = 128
	maxBytes = 16 << 10
)

// appendNumbered appends a take to a TakeStreamRequest.
func appendNumbered(dst []byte, number uint64, k *Take) []byte {
	dst, start := wire.BeginMessage(dst, requestTakes)
	dst = wire.AppendNumber(dst, numberedNumber, number)
	field := protowire.Number(numberedTake)
	if k.IsSettlement {
		field = numberedSettle
	}
	dst = protowire.AppendBytes(protowire.AppendTag(dst, field, wire.Bytes), k.Request)
	if k.Trace.isSet() {
		dst = protowire.AppendBytes(protowire.AppendTag(dst, numberedTrace, wire.Bytes), k.Trace[:])
	}
	if k.IsRelease {
		dst = wire.AppendNumber(dst, numberedRelease, 1)
	}
	return wire.EndMessage(dst, start)
}

// readNumbered reads a NumberedResult. The result aliases data.
func readNumbered(data []byte) (number uint64, result []byte, err error) {
	f := wire.Fields[[]byte]{Rest: data}
	for f.Next() {
		switch {
		case f.Is(resultNumber, wire.Varint):
			number = f.Varint
		case f.Is(resultResult, wire.Bytes):
			result = f.Bytes
		}
	}
	return number, result, f.Err
}

// readResult reads a TakeResult into the take that it answers.
func (k *Take) readResult(data []byte) {
	k.err = errNoResult
	answer := protowire.Number(takeResultAnswer)
	switch {
	case k.IsSettlement:
		answer = takeResultSettle
	case k.IsRelease:
		answer = takeResultFreed
	}
	f := wire.Fields[[]byte]{Rest: data}
	for f.Next() {
		switch {
		case f.Is(answer, wire.Bytes):
			k.Answer, k.err = append(k.Answer[:0], f.Bytes...), nil
		case f.Is(takeResultError, wire.Bytes):
			k.err = readError(f.Bytes)
		}
	}
	if f.Err != nil {
		k.err = Unreadable(f.Err)
	}
}

// readError reads an Error.
func readError(data []byte) error {
	code, text := codes.Unknown, ""
	f := wire.Fields[[]byte]{Rest: data}
	for f.Next() {
		switch {
		case f.Is(errorCode, wire.Varint):
			code = codes.Code(f.Varint)
		case f.Is(errorMessage, wire.Bytes):
			text = string(f.Bytes)
		}
	}
	if f.Err != nil {
		return Unreadable(f.Err)
	}
	return status.Error(code, text)
}

// Unreadable returns the error of an answer that is not a valid message, or nil if err is
// nil.
func Unreadable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("client: the daemon's answer: %w", err)
}
