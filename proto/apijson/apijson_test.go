package apijson_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ratelimitd/ratelimitd/proto/apijson"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

var styles = map[string]protojson.MarshalOptions{
	"plain": {}, "all fields": {EmitDefaultValues: true}, "lines": {Multiline: true, UseProtoNames: true, EmitDefaultValues: true},
}

// messages have texts that look like what surrounds a number.
func messages(text string, n uint64) []proto.Message {
	limit := &ratelimitv1.Limit{Name: text, Requests: n, Capacity: n / 2, Remaining: n % 7, TakenAt: int64(n >> 1), TakenBy: n, Period: durationpb.New(90e9)}
	own := &adminv1.AssignedNumbers{Limit: text, Requests: n, Burst: n, Period: durationpb.New(1)}
	assignment := &adminv1.Assignment{Domain: text, Reason: text, Numbers: []*adminv1.AssignedNumbers{own, {}, own}}
	return []proto.Message{
		&ratelimitv1.TakeResponse{Limits: []*ratelimitv1.Limit{limit, {}, limit}, Granted: n, GoodFor: durationpb.New(9e7)},
		&ratelimitv1.TakeRequest{Domain: text, Lease: n, Descriptors: []*ratelimitv1.Descriptor{
			{Entries: []*ratelimitv1.Entry{{Key: text, Value: text}}, Cost: proto.Uint64(n), Numbers: &ratelimitv1.Numbers{Requests: n, Burst: n}},
		}},
		&adminv1.AuditRecord{Reason: text, Limits: []string{"requests", text, "remaining"}, Before: assignment, After: assignment, Restored: n},
		&adminv1.ExplainResponse{NearDomain: text, Descriptors: []*adminv1.ExplainedDescriptor{
			{Plan: text, Limits: []*adminv1.ExplainedLimit{{Limit: &adminv1.RuleLimit{Name: text, Requests: n, Capacity: n}, Remaining: n}}},
		}},
		&ratelimitv1.GiveBackResponse{},
		&ratelimitv1.SettleResponse{Settled: true, Limits: []*ratelimitv1.SettledLimit{
			{Name: text, Settled: true, Returned: n, Added: n / 3, Takes: n % 5, Remaining: n}, {},
		}},
		&ratelimitv1.ReleaseResponse{Limits: []*ratelimitv1.ReleasedLimit{{Name: text, Released: ratelimitv1.Released_RELEASED_SLOT, Remaining: n}, {}}},
		&ratelimitv1.TakeManyRequest{Takes: []*ratelimitv1.TakeRequest{{Domain: text, Id: "takes"}, {}, {Id: text}}},
		&ratelimitv1.TakeManyResponse{Results: []*ratelimitv1.TakeResult{
			{Result: &ratelimitv1.TakeResult_Settled{Settled: &ratelimitv1.SettleResponse{Limits: []*ratelimitv1.SettledLimit{{Name: text, Takes: n}}}}},
		}},
	}
}

// Where all integers are asked for, only those beyond 2^53 are texts, and texts stay texts.
func TestAllIntegersAreNumbers(t *testing.T) {
	top := &adminv1.TopResponse{Total: 1 << 53, OthersAtMost: 7, Subjects: []*adminv1.TopSubject{{Domain: "7", Rule: "count", Count: 1<<53 + 1, Error: 3, Entries: []*ratelimitv1.Entry{{Key: "total", Value: "5"}}}}}
	limit := &ratelimitv1.TakeResponse{Limits: []*ratelimitv1.Limit{{Name: "7", TakenAt: -5, TakenBy: 1 << 63, Period: durationpb.New(time.Minute)}}}
	for m, want := range map[proto.Message]string{
		top:   `{"subjects":[{"domain":"7","rule":"count","entries":[{"key":"total","value":"5"}],"count":"9007199254740993","error":3}],"total":9007199254740992,"others_at_most":7}`,
		limit: `{"limits":[{"name":"7","period":"60s","taken_at":-5,"taken_by":"9223372036854775808"}]}`,
	} {
		text, err := apijson.MarshalAll(protojson.MarshalOptions{UseProtoNames: true}, m)
		var got bytes.Buffer
		if err != nil || json.Compact(&got, text) != nil || got.String() != want {
			t.Errorf("got %s, %v, want %s", text, err, want)
		}
	}
}

func FuzzNumbersAreNumbers(f *testing.F) {
	for _, text := range []string{
		"", "requests", `"requests":"1"`, `\`, `\"`, `x\"requests\": \"5`, "\x00\n\u2028<>&", `{"burst" : "7"}`, "\u00e9\u202e", "remaining",
	} {
		for _, n := range []uint64{0, 1, 1<<32 - 1, 1 << 32, 1 << 52, 1<<64 - 1} {
			f.Add(text, n)
		}
	}
	f.Fuzz(func(t *testing.T, text string, n uint64) {
		text = strings.ToValidUTF8(text, "?")
		for _, m := range messages(text, n) {
			for name, o := range styles {
				check(t, name, o, m)
			}
		}
	})
}

// check: protobuf reads the same message from what is written, which differs from what
// protojson writes only in the numbers of limits.
func check(t *testing.T, name string, o protojson.MarshalOptions, m proto.Message) {
	t.Helper()
	got, err := apijson.Marshal(o, m)
	if err != nil {
		t.Fatal(err)
	}
	back := m.ProtoReflect().New().Interface()
	if err := protojson.Unmarshal(got, back); err != nil || !proto.Equal(back, m) {
		t.Fatalf("%s: %s is read as %v, %v; want %v", name, got, back, err, m)
	}
	plain, err := o.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := decode(t, got), asNumbers(decode(t, plain), ""); !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: %v, want %v", name, got, want)
	}
}

func decode(t *testing.T, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// asNumbers returns what protojson wrote with numbers where they are expected; name is that
// of the field that has v.
func asNumbers(v any, name string) any {
	switch v := v.(type) {
	case map[string]any:
		for name, of := range v {
			v[name] = asNumbers(of, name)
		}
	case []any:
		for i, of := range v {
			v[i] = asNumbers(of, "")
		}
	case string:
		if isNumber(name) {
			return json.Number(v)
		}
	}
	return v
}

// isNumber reports whether fields of this name are numbers.
func isNumber(name string) bool {
	switch name {
	case "requests", "burst", "capacity", "remaining", "cost", "returned", "added", "takes", "lease", "granted":
		return true
	}
	return false
}

// Whatever a message of the API holds: a field that is called like a number is one, or
// holds messages, and no field has names that somebody else chooses.
func TestEachFieldOfThatNameIsANumber(t *testing.T) {
	numbers := map[string]int{}
	seen := map[protoreflect.FullName]bool{}
	var visit func(protoreflect.MessageDescriptor)
	visit = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			switch {
			case isNumber(string(f.Name())) && f.Message() == nil:
				numbers[string(f.Name())]++
				if !apijson.IsNumber(f) || f.IsList() || f.JSONName() != string(f.Name()) {
					t.Errorf("%s is no number", f.FullName())
				}
			case apijson.IsNumber(f):
				t.Errorf("%s is a number", f.FullName())
			}
			if f.IsMap() || f.Message() != nil && f.Message().FullName() == "google.protobuf.Struct" {
				t.Errorf("%s has names that are not those of fields", f.FullName())
			}
			if f.Message() != nil {
				visit(f.Message())
			}
		}
	}
	for _, file := range []protoreflect.FileDescriptor{ratelimitv1.File_ratelimit_v1_ratelimit_proto, adminv1.File_ratelimit_admin_v1_admin_proto} {
		for i := range file.Messages().Len() {
			visit(file.Messages().Get(i))
		}
	}
	if len(numbers) != 10 || numbers["requests"] < 4 {
		t.Errorf("only these fields were seen: %v", numbers)
	}
}

func TestOtherMessagesStayAsTheyAre(t *testing.T) {
	s, err := structpb.NewStruct(map[string]any{"requests": "5", "burst": fmt.Sprint(1 << 40)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := apijson.Marshal(protojson.MarshalOptions{}, s)
	if err != nil {
		t.Fatal(err)
	}
	if v := decode(t, got); !reflect.DeepEqual(v, map[string]any{"requests": "5", "burst": "1099511627776"}) {
		t.Errorf("got %s", got)
	}
}
