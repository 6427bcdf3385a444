package takeapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/openapitest"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	"github.com/ratelimitd/ratelimitd/internal/server/takeapi"
	"github.com/ratelimitd/ratelimitd/proto/apijson"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// openAPI gets the document from a server.
func openAPI(t *testing.T, d *servertest.Daemon) *openapitest.Document {
	t.Helper()
	return openapitest.Read(t, d.Get("http", "/openapi.yaml"))
}

// methods returns the RPCs by the names of their operations.
func methods() map[string]protoreflect.MethodDescriptor {
	byID := map[string]protoreflect.MethodDescriptor{}
	all := ratelimitv1.File_ratelimit_v1_ratelimit_proto.Services().ByName("RateLimitService").Methods()
	for i := range all.Len() {
		name := string(all.Get(i).Name())
		byID[strings.ToLower(name[:1])+name[1:]] = all.Get(i)
	}
	return byID
}

// The paths and methods of the document are the routes of the API. Each stands
// for an RPC with its messages.
func TestOpenAPIPathsAreTheRoutes(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.TakeLimits)
	doc := openAPI(t, d)
	var routes []string
	for path, operations := range doc.Paths {
		for method, o := range operations {
			method = strings.ToUpper(method)
			routes = append(routes, method+" "+path)
			if p := d.Fetch(method, "http", path, strings.NewReader("{}")); p.Code != http.StatusBadRequest {
				t.Errorf("%s %s of nothing: %d %s", method, path, p.Code, p.Body)
			}
			if p := d.Fetch("DELETE", "http", path, nil); p.Code != http.StatusMethodNotAllowed {
				t.Errorf("DELETE %s: %d %s", path, p.Code, p.Body)
			}
			rpc := methods()[o.ID]
			if rpc == nil {
				t.Errorf("%s %s: there is no RPC %q", method, path, o.ID)
				continue
			}
			wantRef(t, o.RequestBody.Content["application/json"].Schema, rpc.Input())
			wantRef(t, o.Responses["200"].Content["application/json"].Schema, rpc.Output())
		}
	}
	slices.Sort(routes)
	api := takeapi.New(servertest.NewEndpoint(servertest.NewOptions(t, servertest.TakeLimits), "api_http"))
	if want := slices.Sorted(maps.Keys(api.Routes())); !slices.Equal(routes, want) {
		t.Errorf("the document has %v, the API %v", routes, want)
	}
}

func wantRef(t *testing.T, s *openapitest.Schema, m protoreflect.MessageDescriptor) {
	t.Helper()
	if s == nil || s.Ref != openapitest.SchemaRef+string(m.Name()) {
		t.Errorf("got the schema %+v, want that of %s", s, m.Name())
	}
}

// The fields of the messages are the properties, with their types. An answer
// requires the fields that always have a value.
func TestOpenAPISchemasAreTheMessages(t *testing.T) {
	t.Parallel()
	doc := openAPI(t, servertest.Start(t, servertest.TakeLimits))
	messages, answers := map[string]protoreflect.MessageDescriptor{}, map[string]protoreflect.MessageDescriptor{}
	for _, operations := range doc.Paths {
		for _, o := range operations {
			openapitest.Reach(messages, methods()[o.ID].Input())
			openapitest.Reach(messages, methods()[o.ID].Output())
			openapitest.Reach(answers, methods()[o.ID].Output())
		}
	}
	for name := range doc.Components.Schemas {
		if messages[name] == nil && !slices.Contains([]string{"Error", "Duration", "Timestamp"}, name) {
			t.Errorf("there is no message %s", name)
		}
	}
	for name, m := range messages {
		s := doc.Components.Schemas[name]
		if s == nil || s.Type != "object" || s.Additional == nil || *s.Additional {
			t.Errorf("%s is no object with nothing but its properties: %+v", name, s)
			continue
		}
		want := map[string]*openapitest.Schema{}
		for i := range m.Fields().Len() {
			want[m.Fields().Get(i).JSONName()] = openapitest.SchemaOf(m.Fields().Get(i))
		}
		got := map[string]*openapitest.Schema{}
		for name, p := range s.Properties {
			got[name] = p.Bare()
		}
		if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
			t.Errorf("%s has %v, want %v", name, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
		var required []string
		for i := range m.Fields().Len() {
			if f := m.Fields().Get(i); answers[name] != nil && !f.HasPresence() {
				required = append(required, f.JSONName())
			}
		}
		slices.Sort(required)
		if !slices.Equal(s.Required, required) {
			t.Errorf("%s requires %v, want %v", name, s.Required, required)
		}
		for field, w := range want {
			if !reflect.DeepEqual(got[field], w) {
				t.Errorf("%s.%s is %+v, want %+v", name, field, got[field], w)
			}
		}
	}
}

// The handlers accept the examples, and they are written as answers are.
func TestOpenAPIExamplesAreAccepted(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit)
	doc := openAPI(t, d)
	for path, operations := range doc.Paths {
		for method, o := range operations {
			c := o.RequestBody.Content["application/json"]
			body, err := json.Marshal(c.Example)
			if err != nil {
				t.Fatal(err)
			}
			var example any // with numbers as JSON has them
			if err := json.Unmarshal(body, &example); err != nil {
				t.Fatal(err)
			}
			if found := doc.Violations(c.Schema, path, example); example == nil || len(found) > 0 {
				t.Errorf("%s: the example %v: %v", path, example, found)
			}
			m := dynamicpb.NewMessage(methods()[o.ID].Input())
			if err := protojson.Unmarshal(body, m); err != nil {
				t.Fatal(err)
			}
			again, err := apijson.Marshal(protojson.MarshalOptions{}, m)
			if err != nil {
				t.Fatal(err)
			}
			var back any
			if err := json.Unmarshal(again, &back); err != nil || !reflect.DeepEqual(back, example) {
				t.Errorf("%s: %v came back as %v, %v", path, example, back, err)
			}
			if p := d.Fetch(strings.ToUpper(method), "http", path, strings.NewReader(string(body))); p.Code != http.StatusOK {
				t.Errorf("%s: the example got %d %s", path, p.Code, p.Body)
			}
		}
	}
}

// The document describes every answer of the handlers, with each status.
func TestOpenAPIDescribesEveryAnswer(t *testing.T) {
	t.Parallel()
	answering := servertest.Start(t, servertest.TakeLimits+`
  - {key: month, rate_limit: {requests: 4, calendar: month}}
  - {key: worker, descriptors: [{key: job, rate_limit: {name: jobs, algorithm: concurrency, requests: 1, hold: 1m}}]}
`)
	doc := openAPI(t, answering)
	noRefunds := servertest.Start(t, servertest.TakeLimits, func(o *server.Options) { o.Requests.Refunds = false })
	failing := servertest.Start(t, servertest.TakeLimits, func(o *server.Options) {
		inner := o.Store
		o.Store = &servertest.FakeStore{OnTake: func(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
			switch hits[0].Cost {
			case 1:
				return errors.New("the store is away")
			case 2:
				panic("in a store")
			}
			return inner.Take(ctx, hits, decisions)
		}}
	})
	several := []string{"free=x", "shadow=x", "several=x:2", "paid=x:3"}
	for _, a := range buckettest.Rates() {
		several = append(several, a.String()+"=x:3")
	}
	body := func(m proto.Message) string {
		out, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	taken := answering.Take("gcra=z:2")
	for i, c := range []struct {
		d          *servertest.Daemon
		path, body string
		code       int
	}{
		{answering, "/v1/take", body(servertest.Taking(several...)), 200},
		{answering, "/v1/take", body(servertest.Taking(several...)), 429},
		{answering, "/v1/take", body(servertest.Taking("closed=x")), 429},
		{answering, "/v1/take", body(servertest.Taking("gcra=x:9")), 429},
		{answering, "/v1/take", body(servertest.Taking("unknown=x")), 200},
		{answering, "/v1/take", "{", 400},
		{answering, "/v1/take", `"` + strings.Repeat("x", 1<<20) + `"`, 400},
		{answering, "/v1/give-back", body(servertest.GivingBack(servertest.Taking("gcra=z:2"), taken)), 200},
		{answering, "/v1/give-back", body(servertest.GivingBack(servertest.Taking("gcra=z:2"), nil)), 409},
		{answering, "/v1/give-back", "[]", 400},
		{noRefunds, "/v1/give-back", body(servertest.GivingBack(servertest.Taking("gcra=z:2"), taken)), 403},
		{answering, "/v1/take", `{"domain": "api", "id": "one", "settleWithin": "60s", "descriptors": [{"entries": [{"key": "paid", "value": "s"}], "cost": 3}]}`, 200},
		{answering, "/v1/take", `{"domain": "api", "settleWithin": "60s", "descriptors": [{"entries": [{"key": "paid", "value": "s"}]}]}`, 400},
		{answering, "/v1/settle", body(servertest.Settling("one", "paid=s:1")), 200},
		{answering, "/v1/settle", body(servertest.Settling("another", "paid=s:1", "several=x:2")), 200},
		{answering, "/v1/settle", body(servertest.Settling("one", "paid=s")), 400},
		{answering, "/v1/settle", "[]", 400},
		{answering, "/v1/take", body(servertest.Taking("month=x")), 200},
		{answering, "/v1/take", body(servertest.Taking("worker=x,job=1")), 200},
		{answering, "/v1/take", body(servertest.Taking("worker=x,job=2")), 429},
		{answering, "/v1/release", body(servertest.Taking("worker=x,job=1")), 200},
		{answering, "/v1/release", body(servertest.Taking("worker=x,job=1", "free=x")), 200},
		{answering, "/v1/release", body(servertest.Taking("worker=x,job=")), 400},
		{failing, "/v1/take", body(servertest.Taking("gcra=x")), 503},
		{failing, "/v1/take", body(servertest.Taking("gcra=x:2")), 500},
	} {
		t.Run(fmt.Sprint(c.path, " ", c.code, " ", i), func(t *testing.T) {
			p := c.d.Fetch("POST", "http", c.path, strings.NewReader(c.body))
			if p.Code != c.code || p.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%.200s: %d %s, want %d", c.body, p.Code, p.Body, c.code)
				return
			}
			doc.WantDescribed(t, c.body[:min(len(c.body), 200)], doc.Paths[c.path]["post"], p)
		})
	}
}
