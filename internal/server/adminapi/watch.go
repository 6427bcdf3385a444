package adminapi

import (
	"context"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/server/assignmsg"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

const (
	// watchBuffer bounds the bytes of records that wait for the caller of a watch.
	watchBuffer = 256 << 10
	// watchWrite is how long one record may take to be written.
	watchWrite = 10 * time.Second
	// watchCheck is how often a watch checks whether its caller may still watch.
	watchCheck = time.Second
)

var errSlowWatch = status.Error(codes.ResourceExhausted, "the caller does not keep up: list the assignments and watch again")

// WatchAssignments implements adminv1.AdminServiceServer.
func (a *API) WatchAssignments(r *adminv1.WatchAssignmentsRequest, stream grpc.ServerStreamingServer[adminv1.WatchAssignmentsResponse]) error {
	return a.watch(stream.Context(), r.GetDomain(), func() error { return stream.SendHeader(metadata.MD{}) }, stream.Send)
}

// watch sends records of changes from now on until the caller goes, or may no longer
// watch. begin begins the answer.
func (a *API) watch(ctx context.Context, domain string, begin func() error, send func(*adminv1.WatchAssignmentsResponse) error) error {
	if err := a.hasAssignments(); err != nil {
		return err
	}
	leave, err := a.watching.enter(memberOf(ctx).Name)
	if err != nil {
		return err
	}
	defer leave()
	// Deadlines of the port are for requests that end; here each record has one.
	deadlines := visitOf(ctx).deadlines
	deadlines.read(time.Time{})
	patience := func() { deadlines.write(time.Now().Add(watchWrite)) }
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	defer context.AfterFunc(a.Stopping, func() { cancel(status.Error(codes.Unavailable, "the daemon stops")) })()

	q := &recordQueue{domain: domain, came: make(chan struct{}, 1)}
	watching.Go(func() {
		err := a.Assignments.Watch(ctx, q.add)
		switch {
		case q.isFull():
			err = errSlowWatch
		case err != nil:
			err = status.Errorf(codes.Unavailable, "the store ended the watch: %v", err)
		default:
			err = status.Error(codes.Unavailable, "the store ended the watch")
		}
		cancel(err) // which does nothing if ctx had ended before
	})
	patience()
	if err := begin(); err != nil {
		return err
	}
	deadlines.write(time.Time{})
	tick := time.NewTicker(watchCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return endOf(ctx)
		case <-q.came:
		case <-tick.C:
		}
		if err := mayStill(ctx, "WatchAssignments"); err != nil {
			return err
		}
		for _, record := range q.take() {
			patience()
			if err := send(record); err != nil {
				return err
			}
		}
		deadlines.write(time.Time{})
	}
}

// endOf returns why a watch ended.
func endOf(ctx context.Context) error {
	if _, ok := status.FromError(context.Cause(ctx)); ok {
		return context.Cause(ctx)
	}
	return status.FromContextError(ctx.Err()).Err()
}

// recordQueue has the records that wait for the caller of a watch.
type recordQueue struct {
	domain string
	came   chan struct{}

	mu      sync.Mutex
	records []*adminv1.WatchAssignmentsResponse
	bytes   int
	full    bool
}

// add adds a record. It returns false if there is no room.
func (q *recordQueue) add(r assign.Record) bool {
	if q.domain != "" && r.Domain != q.domain {
		return true
	}
	m := &adminv1.WatchAssignmentsResponse{Record: assignmsg.ShowRecord(&r)}
	// In memory a record takes some four times the bytes of its message.
	size := 4 * proto.Size(m)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.full = q.full || q.bytes+size > watchBuffer; q.full {
		return false
	}
	q.records, q.bytes = append(q.records, m), q.bytes+size
	select {
	case q.came <- struct{}{}:
	default:
	}
	return true
}

// take returns the records that wait.
func (q *recordQueue) take() []*adminv1.WatchAssignmentsResponse {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.records
	q.records, q.bytes = nil, 0
	return all
}

func (q *recordQueue) isFull() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.full
}

// getWatch is WatchAssignments: a record on each line, until the caller goes. An
// error after the first line is the last one.
func (a *API) getWatch(w http.ResponseWriter, r *http.Request) {
	begun := false
	response := http.NewResponseController(w)
	err := a.do(r.Context(), "WatchAssignments", func() error {
		values, err := readQuery(r, "domain")
		if err != nil {
			return err
		}
		if r.ContentLength != 0 {
			// Over HTTP/1 the end of the connection is not seen while a body is unread.
			return endpoint.Invalid("the body: found one; allowed: none")
		}
		begin := func() error {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusOK)
			return response.Flush()
		}
		return a.watch(r.Context(), values.Get("domain"), begin, func(m *adminv1.WatchAssignmentsResponse) error {
			if err := answerJSON.NewEncoder(w).Encode(m.GetRecord()); err != nil {
				return err
			}
			return response.Flush()
		})
	})
	switch {
	case err == nil:
	case begun:
		endpoint.AppendError(w, status.Convert(err).Message())
	default:
		writeStatus(w, err)
	}
}
