package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/config/forwardauth"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/server/authapi"
)

// Access returns the format of an access log, such as Envoy's: a JSON object on each
// line. An endpoint of a file for forward auth says which descriptors a
// request has. Its values come from fields: a header from the field of that name, in any
// case and with _ for -, and the others from fields with these names:
//
//	time            start_time, time, timestamp, @timestamp
//	method          method, request_method
//	path, query     x_envoy_original_path, path, request_uri, uri
//	client_address  downstream_remote_address, remote_addr, client_address
//
// The writer of the log counts as a trusted proxy.
func Access(file *forwardauth.File, endpoint *forwardauth.Endpoint) Format {
	return &access{file: file, endpoint: endpoint, fields: make(map[string]string)}
}

type access struct {
	file     *forwardauth.File
	endpoint *forwardauth.Endpoint
	// fields are the fields of a line.
	fields map[string]string
	object map[string]any
}

var (
	timeFields   = []string{"start_time", "time", "timestamp", "@timestamp"}
	methodFields = []string{"method", "request_method"}
	pathFields   = []string{"x_envoy_original_path", "path", "request_uri", "uri"}
	clientFields = []string{"downstream_remote_address", "downstream_remote_address_without_port", "remote_addr", "client_address"}
)

func (a *access) begin(line []byte) (bool, error) { return false, a.parse(line) }

// parse reads the fields of a line. "-" is Envoy's notation for no value.
func (a *access) parse(line []byte) error {
	clear(a.fields)
	clear(a.object)
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if err := d.Decode(&a.object); err != nil {
		return fmt.Errorf("byte %d: found %w; allowed: an object of JSON on each line", d.InputOffset(), err)
	}
	for name, value := range a.object {
		text, isText := value.(string)
		if n, isNumber := value.(json.Number); isNumber {
			text, isText = n.String(), true
		}
		if isText && text != "" && text != "-" {
			a.fields[strings.ReplaceAll(strings.ToLower(name), "-", "_")] = text
		}
	}
	return nil
}

// first returns the first of several fields that the line has.
func (a *access) first(names []string) string {
	for _, name := range names {
		if v := a.fields[name]; v != "" {
			return v
		}
	}
	return ""
}

func (a *access) at() (int64, error) {
	text := a.first(timeFields)
	if text == "" {
		return 0, fmt.Errorf("time: found none; allowed: one of the fields %s", strings.Join(timeFields, ", "))
	}
	return parseMoment(text)
}

func (a *access) head(line []byte) (h decisionlog.Head, err error) {
	if err = a.parse(line); err == nil {
		h.At, err = a.at()
	}
	return h, err
}

func (a *access) read(line []byte, to *Record) error {
	if err := a.parse(line); err != nil {
		return err
	}
	at, err := a.at()
	if err != nil {
		return err
	}
	to.Line, to.Recorded = decisionlog.Line{At: at, Domain: a.endpoint.Domain}, false
	var c decide.Call
	if !authapi.Describe(&c, a.file, a.endpoint, a.request()) {
		to.Result = decisionlog.Failed // it was denied before any limit was asked
		return nil
	}
	for i := range c.Descriptors {
		d := &c.Descriptors[i]
		to.Descriptors = append(to.Descriptors, decisionlog.Descriptor{Entries: d.Entries, Cost: int64(d.HitsAddend), Doubtful: d.IsDoubtful})
	}
	return nil
}

// request returns the request as the proxy would have sent it for this line.
func (a *access) request() *http.Request {
	header := make(http.Header, len(a.fields)+2)
	for name, value := range a.fields {
		header.Set(strings.ReplaceAll(name, "_", "-"), value)
	}
	header.Set(a.endpoint.MethodHeader, a.first(methodFields))
	header.Set(a.endpoint.URIHeader, a.first(pathFields))
	r := &http.Request{Header: header, RemoteAddr: a.first(clientFields)}
	if len(a.file.TrustedProxies) > 0 {
		forwarded := strings.TrimPrefix(header.Get("X-Forwarded-For")+", "+r.RemoteAddr, ", ")
		header.Set("X-Forwarded-For", strings.TrimSuffix(forwarded, ", "))
		r.RemoteAddr = net.JoinHostPort(a.file.TrustedProxies[0].Addr().String(), "0")
	}
	return r
}
