package adminapi

import (
	"bytes"
	"context"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server/pages"
)

// A lister makes an answer that is a list. It calls add with each item, ends with the
// error of add if there is one, and returns the answer without the items. So an answer in
// JSON is written item by item. One over gRPC is a message, which has to be made whole.
type lister[Q, I, A any] func(ctx context.Context, q *Q, add func(*I) error) (*A, error)

// collected returns an answer with its items, which are charged as they are made.
func collected[Q, I, A any](ctx context.Context, q *Q, list lister[Q, I, A], put func(*A, []*I)) (*A, error) {
	room := answerRoom{ctx: ctx}
	var items []*I
	answer, err := list(ctx, q, func(item *I) error {
		if err := room.add(any(item).(proto.Message)); err != nil {
			return err
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

// listed returns the handler of a method whose answer is a list: the answer's first
// field, which has the name field.
func listed[Q, I, A any](a *API, method string, read reader[Q], list lister[Q, I, A], field string) http.HandlerFunc {
	return handled(a, method, read, func(ctx context.Context, w http.ResponseWriter, q *Q) error {
		l := &listWriter{client: w, room: answerRoom{ctx: ctx}, field: field}
		rest, err := list(ctx, q, func(item *I) error { return l.add(any(item).(proto.Message)) })
		if err == nil {
			err = l.end(any(rest).(proto.Message))
		}
		if err != nil && l.out != nil {
			return &brokenAnswer{err}
		}
		return err
	})
}

// listWriter writes an answer in JSON that is a list.
type listWriter struct {
	client http.ResponseWriter
	room   answerRoom
	field  string
	// out is nil before the first item: until then an error can be reported.
	out *pages.Writer
}

// add writes an item.
func (l *listWriter) add(item proto.Message) error {
	if err := l.room.hold(item); err != nil {
		return err
	}
	if l.out == nil {
		l.begin()
	} else {
		l.out.Bytes = append(l.out.Bytes, ',')
	}
	return l.write(item)
}

func (l *listWriter) begin() {
	writeHeader(l.client, http.StatusOK)
	l.out = pages.NewWriter(l.client)
	l.out.Bytes = append(l.out.Bytes, `{"`+l.field+`":[`...)
}

func (l *listWriter) write(m proto.Message) (err error) {
	if l.out.Bytes, err = appendCompact(l.out.Bytes, m); err != nil {
		return err
	}
	if !l.out.FlushIfLong() {
		return errNotRead
	}
	return nil
}

var errNotRead = status.Error(codes.Canceled, "the caller does not read the answer")

// end writes what the answer has besides its items.
func (l *listWriter) end(rest proto.Message) error {
	if l.out == nil {
		l.begin()
	}
	text, err := appendCompact(nil, rest)
	if err != nil {
		return err
	}
	// The list, which is empty there, is written already.
	l.out.Bytes = append(l.out.Bytes, bytes.TrimPrefix(text, []byte(`{"`+l.field+`":[`))...)
	l.out.Bytes = append(l.out.Bytes, '\n')
	if l.out.Flush(); l.out.Err() != nil {
		return errNotRead
	}
	return nil
}

// brokenAnswer is why an answer ended after it had begun. Its connection ends with it, so
// that nobody takes it for complete.
type brokenAnswer struct{ error }

// Unwrap is for errors.As.
func (b *brokenAnswer) Unwrap() error { return b.error }
