package endpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server/accounts"
	"github.com/ratelimitd/ratelimitd/proto/apijson"
)

// ReadBody reads a message in protobuf JSON. If it cannot, it answers the request
// and returns false.
func (e *Endpoint) ReadBody(w http.ResponseWriter, r *http.Request, message proto.Message, bounds JSONBounds) bool {
	if err := ReadJSON(w, r, message, bounds); err != nil {
		e.Requests.Failed(status.Code(err))
		WriteStatus(w, err)
		return false
	}
	return true
}

// ReadJSON reads a body that is a message in protobuf JSON, and charges it to its
// connection. Its error is a status for the caller.
func ReadJSON(w http.ResponseWriter, r *http.Request, message proto.Message, bounds JSONBounds) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(bounds.Bytes)))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			err = fmt.Errorf("the body is larger than %d bytes", bounds.Bytes)
		}
		return Invalid("the body cannot be read: %v", err)
	}
	if err := accounts.ConnectionOf(r.Context()).Reserve(r.Context(), int64(8*len(body))); err != nil {
		return err
	}
	err = bounds.check(body)
	if err == nil {
		err = protojson.Unmarshal(body, message)
	}
	if err != nil {
		return Invalid("the body is no %s in protobuf JSON: %v", message.ProtoReflect().Descriptor().Name(), err)
	}
	return nil
}

// answerJSON also prints fields that are false or 0, for readers that do not know what
// a missing field means.
var answerJSON = protojson.MarshalOptions{EmitDefaultValues: true}

// WriteMessage writes the answer to a request that was decided.
func WriteMessage(w http.ResponseWriter, message proto.Message, denied bool) {
	out, err := apijson.Marshal(answerJSON, message)
	if err != nil {
		WriteError(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if denied {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	// A client that no longer reads is not a failure.
	_, _ = w.Write(append(out, '\n'))
}

// WriteStatus writes the error of a call, with its HTTP status.
func WriteStatus(w http.ResponseWriter, err error) {
	WriteError(w, HTTPStatus(status.Code(err)), status.Convert(err).Message())
}

// WriteError writes a refusal as JSON.
func WriteError(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	AppendError(w, message)
}

// AppendError writes a line of JSON with an error.
func AppendError(w io.Writer, message string) {
	_ = json.NewEncoder(w).Encode(map[string]string{"error": message})
}
