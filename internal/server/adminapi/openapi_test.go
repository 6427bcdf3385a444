package adminapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/ratelimitd/ratelimitd/internal/server/openapitest"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// adminOpenAPI gets the document from a server on which everybody may look.
func adminOpenAPI(t *testing.T) *openapitest.Document {
	t.Helper()
	d := servertest.Start(t, adminLimits, servertest.WithAssignments(servertest.NewAssignments(t)))
	return openapitest.Read(t, d.Get("admin", "/admin/v1/openapi.yaml"))
}

// adminMessages are the messages that the document speaks of, by name.
func adminMessages() map[string]protoreflect.MessageDescriptor {
	messages := map[string]protoreflect.MessageDescriptor{}
	methods := adminv1.File_ratelimit_admin_v1_admin_proto.Services().ByName("AdminService").Methods()
	for i := range methods.Len() {
		openapitest.Reach(messages, methods.Get(i).Input())
		openapitest.Reach(messages, methods.Get(i).Output())
	}
	return messages
}

// Each route is in the document, and stands for an RPC of its name.
func TestAdminOpenAPIPathsAreTheRoutes(t *testing.T) {
	t.Parallel()
	doc := adminOpenAPI(t)
	methods := adminv1.File_ratelimit_admin_v1_admin_proto.Services().ByName("AdminService").Methods()
	missing := map[string]bool{}
	for i := range methods.Len() {
		missing[string(methods.Get(i).Name())] = true
	}
	var routes []string
	for path, operations := range doc.Paths {
		for method, o := range operations {
			routes = append(routes, strings.ToUpper(method)+" "+path)
			delete(missing, strings.ToUpper(o.ID[:1])+o.ID[1:])
			if method == "get" != (o.RequestBody.Content == nil) && method != "delete" {
				t.Errorf("%s %s has the body %v", method, path, o.RequestBody)
			}
		}
	}
	slices.Sort(routes)
	if want := slices.Sorted(maps.Keys(newAPI(t, servertest.NewOptions(t, adminLimits)).Routes())); !slices.Equal(routes, want) {
		t.Errorf("the document has\n%v\nthe API\n%v", routes, want)
	}
	if len(missing) > 0 {
		t.Errorf("there is no operation for %v", slices.Sorted(maps.Keys(missing)))
	}
}

// The fields of the messages are the properties, with their types.
func TestAdminOpenAPISchemasAreTheMessages(t *testing.T) {
	t.Parallel()
	doc := adminOpenAPI(t)
	messages := adminMessages()
	for name, s := range doc.Components.Schemas {
		m := messages[name]
		if m == nil {
			if name != "Error" && name != "Duration" && name != "Timestamp" {
				t.Errorf("there is no message %s", name)
			}
			continue
		}
		want := map[string]*openapitest.Schema{}
		for i := range m.Fields().Len() {
			want[m.Fields().Get(i).TextName()] = openapitest.SchemaOf(m.Fields().Get(i))
		}
		if got, want := slices.Sorted(maps.Keys(s.Properties)), slices.Sorted(maps.Keys(want)); !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", name, got, want)
			continue
		}
		for field, w := range want {
			if got := s.Properties[field].Bare(); !reflect.DeepEqual(got, w) {
				t.Errorf("%s.%s is %+v, want %+v", name, field, got, w)
			}
		}
	}
}

// The API takes the examples, and the parameters that the document names.
func TestAdminOpenAPIExamplesAreAccepted(t *testing.T) {
	t.Parallel()
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	d := servertest.Start(t, "domain: api\ndescriptors:\n- {key: user, rate_limit: {requests: 5, period: 1h}}\n", members, servertest.WithAssignments(servertest.NewAssignments(t)), servertest.KeepingTops)
	doc := openapitest.Read(t, d.AskAdmin("GET", "/openapi.yaml", "run", ""))
	values := map[string]string{
		"domain": "api", "entry": "user=alice", "path": "user", "prefix": "user", "plan": "pro", "blocked": "true", "page_size": "10", "page_token": "", "dry_run": "true", "reason": "r",
		"rule": "user", "by": "denied", "window": "15m", "rows": "5",
	}
	for path, operations := range doc.Paths {
		for _, method := range []string{"put", "get", "post", "delete"} {
			o, ok := operations[method]
			if !ok || o.ID == "watchAssignments" {
				continue
			}
			query := url.Values{}
			for _, p := range o.Parameters {
				if p.In == "query" {
					query.Set(p.Name, values[p.Name])
				}
			}
			body := ""
			if c := o.RequestBody.Content["application/json"]; c.Schema != nil {
				text, err := json.Marshal(c.Example)
				if err != nil {
					t.Fatal(err)
				}
				var example any
				if err := json.Unmarshal(text, &example); err != nil {
					t.Fatal(err)
				}
				if found := doc.Violations(c.Schema, path, example); len(found) > 0 {
					t.Errorf("%s: the example %s: %v", path, text, found)
				}
				name := strings.TrimPrefix(c.Schema.Ref, openapitest.SchemaRef)
				if err := protojson.Unmarshal(text, dynamicpb.NewMessage(adminMessages()[name])); err != nil {
					t.Errorf("%s: the example is no %s: %v", path, name, err)
				}
				body = string(text)
			}
			p := d.AskAdmin(strings.ToUpper(method), strings.TrimPrefix(path, "/admin/v1")+"?"+query.Encode(), "run", body)
			doc.WantDescribed(t, fmt.Sprint(method, " ", path), o, p)
			if p.Code >= 400 && p.Code != 404 && p.Code != 412 && p.Code != 501 { // 412: nothing to undo yet
				t.Errorf("%s %s: %d %s", method, path, p.Code, p.Body)
			}
		}
	}
}
