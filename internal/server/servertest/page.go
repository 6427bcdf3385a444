package servertest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Page is an answer over HTTP.
type Page struct {
	Code   int
	Body   string
	Header http.Header
}

// Do sends a request and reads the answer. It fails the test if there is none.
func (d *Daemon) Do(r *http.Request) Page {
	d.T.Helper()
	p, err := read(d.Client.Do(r))
	if err != nil {
		d.T.Fatal(err)
	}
	return p
}

// read reads the answer of a client, or returns its error.
func read(response *http.Response, err error) (Page, error) {
	if err != nil {
		return Page{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return Page{Code: response.StatusCode, Body: string(text), Header: response.Header}, err
}

// Get gets a page from the port http, admin or metrics.
func (d *Daemon) Get(port, path string) Page {
	d.T.Helper()
	return d.Fetch(http.MethodGet, port, path, nil)
}

// Post posts a body to /json of the port http.
func (d *Daemon) Post(body string) Page {
	d.T.Helper()
	return d.Fetch(http.MethodPost, "http", "/json", strings.NewReader(body))
}

// Fetch asks a port, with a body unless it is nil. It fails the test if there is no
// answer.
func (d *Daemon) Fetch(method, port, path string, body io.Reader) Page {
	d.T.Helper()
	p, err := d.TryFetch(method, port, path, body)
	if err != nil {
		d.T.Fatal(err)
	}
	return p
}

// TryFetch is Fetch, but may fail.
func (d *Daemon) TryFetch(method, port, path string, body io.Reader) (Page, error) {
	r, err := http.NewRequest(method, "http://"+d.Server.Address(port)+path, body)
	if err != nil {
		return Page{}, err
	}
	return read(d.Client.Do(r))
}

// PostUntil posts to /json until ctx ends, and returns an error unless the answer is
// 200.
func (d *Daemon) PostUntil(ctx context.Context, body string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.Server.Address("http")+"/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	p, err := read(d.Client.Do(r))
	if err == nil && p.Code != http.StatusOK {
		err = fmt.Errorf("%d %s", p.Code, p.Body)
	}
	return err
}

// ReadMessage reads the message in JSON that a page has. It fails the test if the page
// has another code.
func ReadMessage[M any](t testing.TB, p Page, code int) *M {
	t.Helper()
	m := new(M)
	if p.Code != code {
		t.Fatalf("%d %s, want %d", p.Code, p.Body, code)
	}
	if err := protojson.Unmarshal([]byte(p.Body), any(m).(proto.Message)); err != nil {
		t.Fatal(err)
	}
	return m
}
