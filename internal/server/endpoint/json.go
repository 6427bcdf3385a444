package endpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server/overload"
	"github.com/ratelimitd/ratelimitd/proto/apijson"
)

// ReadBody is the function ReadBody, except that it also checks the site, answers a request
// that it refuses, and returns false.
func (e *Endpoint) ReadBody(w http.ResponseWriter, r *http.Request, bounds JSONBounds) bool {
	err := CheckSite(r)
	if err == nil {
		err = ReadBody(w, r, bounds)
	}
	if err != nil {
		e.Requests.Failed(status.Code(err))
		WriteStatus(w, err)
	}
	return err == nil
}

// ReadBody reads the body of a request within bounds, reserves what it becomes, and
// puts what it read in the place of the body. Its error is a status.
func ReadBody(w http.ResponseWriter, r *http.Request, bounds JSONBounds) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(bounds.Bytes)))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			err = fmt.Errorf("the body is larger than %d bytes", bounds.Bytes)
		}
		return Invalid("the body cannot be read: %v", err)
	}
	if err := overload.Reserve(r.Context(), int64(8*len(body))); err != nil {
		return err
	}
	if err := bounds.check(body); err != nil {
		return Invalid("the body cannot be read: %v", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// parseJSON reads a message in protobuf JSON. Its error says what is wrong with the body.
func parseJSON(body io.Reader, message proto.Message) error {
	text, err := io.ReadAll(body)
	if err == nil {
		err = protojson.Unmarshal(text, message)
	}
	if err != nil {
		return fmt.Errorf("the body is no %s in protobuf JSON: %w", message.ProtoReflect().Descriptor().Name(), err)
	}
	return nil
}

// JSON is how the handlers of grpc-gateway read requests and write answers.
type JSON struct {
	protojson.MarshalOptions
	// IsCompact removes blanks, which protojson varies, from answers.
	IsCompact bool
	// Inner returns the message that the body is, where v is no message. It is nil if
	// all bodies are messages.
	Inner func(v any) proto.Message
	// Invalid, if set, is called for each body that is not what it should be.
	Invalid func()
}

// ContentType implements runtime.Marshaler.
func (j *JSON) ContentType(any) string { return "application/json" }

// Marshal implements runtime.Marshaler.
func (j *JSON) Marshal(v any) ([]byte, error) {
	text, err := apijson.Marshal(j.MarshalOptions, v.(proto.Message))
	if err != nil {
		return nil, err
	}
	if j.IsCompact {
		out := bytes.NewBuffer(make([]byte, 0, len(text)+1))
		if err := json.Compact(out, text); err != nil {
			return nil, err
		}
		text = out.Bytes()
	}
	return append(text, '\n'), nil
}

// Unmarshal implements runtime.Marshaler.
func (j *JSON) Unmarshal(text []byte, v any) error {
	return j.NewDecoder(bytes.NewReader(text)).Decode(v)
}

// NewDecoder implements runtime.Marshaler.
func (j *JSON) NewDecoder(body io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		message, ok := v.(proto.Message)
		if !ok {
			message = j.Inner(v)
		}
		err := parseJSON(body, message)
		if err != nil && j.Invalid != nil {
			j.Invalid()
		}
		return err
	})
}

// NewEncoder implements runtime.Marshaler.
func (j *JSON) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		text, err := j.Marshal(v)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	})
}

// JSON returns how an endpoint reads and writes JSON. It prints fields that are false or 0
// too, for readers that do not know what a missing field means.
func (e *Endpoint) JSON() *JSON {
	return &JSON{
		MarshalOptions: protojson.MarshalOptions{EmitDefaultValues: true},
		Invalid:        func() { e.Requests.Failed(codes.InvalidArgument) },
	}
}

// NoHeaders lets none of a request's headers become metadata, which nothing here reads.
func NoHeaders(string) (string, bool) { return "", false }

// IgnoringErrors is a client that need not read its answer. grpc-gateway would log each
// write that fails.
type IgnoringErrors struct{ http.ResponseWriter }

// Write implements http.ResponseWriter.
func (w IgnoringErrors) Write(text []byte) (int, error) {
	_, _ = w.ResponseWriter.Write(text)
	return len(text), nil
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
