package assign_test

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/assigntest"
)

// The stored form is what daemons of other versions read.
func TestStoredForm(t *testing.T) {
	t.Parallel()
	a := &assign.Assignment{
		Subject: subject("api", "tenant=acme"),
		Base: assign.Layer{
			Terms: assign.Terms{Plan: "pro", Numbers: []assign.Numbers{{Limit: "month", Requests: 5_000_000, Period: time.Hour, Burst: 3}}, Calendar: assign.Calendar{Starts: "15", TimeZone: "UTC"}},
			By:    "ann", Reason: "contract", At: 7,
		},
		Layers: []assign.Layer{{Terms: assign.Terms{Unlimited: true, Blocked: true}, Until: 9}},
		ETag:   "1-1",
	}
	const want = `{"domain":"api","entries":[{"key":"tenant","value":"acme"}],` +
		`"base":{"plan":"pro","numbers":[{"limit":"month","requests":5000000,"period":3600000000000,"burst":3}],"calendar":{"time_zone":"UTC","starts":"15"},"reason":"contract","by":"ann","at":7},` +
		`"layers":[{"unlimited":true,"blocked":true,"until":9}]}`
	if got := string(assign.Encode(a)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	const least = `{"domain":"api","entries":[{"key":"tenant","value":"acme"}],"base":{"plan":"p"}}`
	if got := string(assign.Encode(plan("p", subject("api", "tenant=acme")))); got != least {
		t.Errorf("got  %s\nwant %s", got, least)
	}
}

func TestWhatIsEncodedIsDecoded(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	layered := 0
	for range 1000 {
		a := assigntest.RandomAssignment(r)
		again, err := assign.Decode(assign.Encode(a))
		if err != nil {
			t.Fatalf("%+v: %v", a, err)
		}
		again.ETag = a.ETag
		if !reflect.DeepEqual(again, a) {
			t.Fatalf("%+v is read as %+v", a, again)
		}
		if len(a.Layers) > 1 {
			layered++
		}
		before := assigntest.RandomAssignment(r)
		before.ETag = ""
		record := assign.Record{ID: a.ETag, Kind: assign.Assigned, Subject: a.Subject, Before: before, After: a, Moment: 7, By: "ann", Reason: "x"}
		if got, err := assign.DecodeRecord(assign.EncodeRecord(&record), a.ETag, 9); err != nil || !reflect.DeepEqual(got, record) {
			t.Fatalf("a record is read as %+v, %v, want %+v", got, err, record)
		}
	}
	if layered < 100 {
		t.Errorf("only %d have several layers", layered)
	}
}

// A store whose records are named by their time need not write it.
func TestRecordHasTheTimeOfItsID(t *testing.T) {
	t.Parallel()
	c := assigntest.Plan(assigntest.Subject("d", "a"), "p")
	_, after, _ := c.Apply(nil, 5)
	record := c.Record(nil, after)
	got, err := assign.DecodeRecord(assign.EncodeRecord(&record), "7-1", 7000)
	if err != nil || got.ID != "7-1" || got.Moment != 7000 || got.After.ETag != "7-1" || got.After.Base.At != 7000 {
		t.Errorf("got %+v of %+v, %v", got, got.After, err)
	}
}

func TestDecodeTakesNoHalf(t *testing.T) {
	t.Parallel()
	const head = `{"domain":"d","entries":[{"key":"a","value":"b"}]`
	for _, rest := range []string{
		`,"base":{"plan":"pro"}}`,
		`,"base":{"numbers":[{"requests":0}]},"layers":[{"blocked":true,"until":9007199254740991}]}`,
	} {
		if _, err := assign.Decode([]byte(head + rest)); err != nil {
			t.Errorf("%s: %v", rest, err)
		}
	}
	for _, text := range []string{
		"", "1", "null", "{}", head, head + "}",
		head + `,"base":{}}`,
		head + `,"layers":[]}`,
		head + `,"base":{"plan":"pro"}}{}`,
		head + `,"base":{"plan":"pro","quota":5}}`,
		head + `,"base":{"plan":"pro"},"later":true}`,
		head + `,"plan":"pro"}`,
		head + `,"etag":"1","base":{"plan":"pro"}}`,
		head + `,"base":{"plan":"pro","until":5}}`,
		head + `,"base":{"plan":5}}`,
		head + `,"base":{"calendar":{"starts":15}}}`,
		head + `,"base":{"calendar":{"starts":"` + strings.Repeat("1", 257) + `"}}}`,
		head + `,"base":{"numbers":[{"requests":-1}]}}`,
		head + `,"base":{"numbers":[{"requests":1,"algorithm":"gcra"}]}}`,
		head + `,"layers":[{"plan":"pro"}]}`,
		head + `,"layers":[{"until":5}]}`,
		head + `,"layers":[{"plan":"pro","until":-5}]}`,
		head + `,"layers":[{"plan":"pro","until":9007199254740992}]}`,
	} {
		if a, err := assign.Decode([]byte(text)); err == nil {
			t.Errorf("%s is read as %+v", text, a)
		}
	}
}

// What a later version wrote is shown as far as it can be, and never taken back by halves.
func TestRecordsOfALaterVersionAreNotUndone(t *testing.T) {
	t.Parallel()
	const known, later = `{"domain":"d","entries":[{"key":"a","value":"b"}],"base":{"plan":"p"}}`, `{"domain":"d","entries":[{"key":"a","value":"b"}],"base":{"later":"p"}}`
	for text, isKnown := range map[string]bool{
		`"kind":1,"before":` + known + `,"after":` + known: true,
		`"kind":1,"before":` + later + `,"after":` + known: false,
		`"kind":1,"before":` + known + `,"after":` + later: false,
		`"kind":1,"after":` + later:                        false,
		`"kind":2,"before":` + later:                       false,
		`"kind":2,"before":` + known:                       true,
		`"kind":3`:                                         false,
		`"kind":9`:                                         false,
	} {
		r, err := assign.DecodeRecord([]byte(`{"domain":"d","entries":[{"key":"a","value":"b"}],"by":"ann",`+text+"}"), "5", 5)
		if err != nil || r.By != "ann" || r.Domain != "d" {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
		if _, err := assign.Undo(r); (err == nil) != isKnown {
			t.Errorf("an undo of %s: %v", text, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 20 {
		f.Add(assign.Encode(assigntest.RandomAssignment(r)))
	}
	f.Add([]byte(`{"domain":"d","entries":[{"key":"a","value":"b"}],"base":{"plan":"p"},"layers":[{"plan":"p","until":5},{"plan":"q","until":6}]}`))
	f.Add([]byte(`{"domain":"d","entries":[{"key":"a","value":"b"}],"base":{"plan":"p","later":true}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := assign.Decode(text)
		if err != nil {
			return
		}
		if err := a.Check(); err != nil {
			t.Fatalf("%q: what was read is not valid: %v", text, err)
		}
		form := assign.Encode(a)
		again, err := assign.Decode(form)
		if err != nil || !bytes.Equal(assign.Encode(again), form) {
			t.Fatalf("%s is read as %+v, %v", form, again, err)
		}
		table := assign.NewTable()
		if table.Put(a); !bytes.Equal(assign.Encode(table.Get(a.Subject)), form) {
			t.Fatalf("%s becomes %+v in a table", form, table.Get(a.Subject))
		}
	})
}
