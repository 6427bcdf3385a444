package assign_test

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/assigntest"
)

// Whatever versions before parts can say is written so that they read it, and all else so
// that they take it for damaged, rather than for something else.
func TestWhatVersionsBeforePartsCanSayTheyCanRead(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	forms := map[bool]int{}
	for range 5000 {
		a := assigntest.RandomAssignment(r)
		text := assign.Encode(a)
		forms[strings.Contains(string(text), `"parts":`)]++
		if wrong := assigntest.WrongForm(text, a); wrong != "" {
			t.Fatal(wrong)
		}
		if again, err := assign.Decode(text); err != nil || !reflect.DeepEqual(again, a) {
			t.Fatalf("%s is read as %+v, %v, want %+v", text, again, err, a)
		}
		record := assign.Record{Kind: assign.Assigned, Subject: a.Subject, Before: a, After: a, Moment: 7, By: "ann"}
		if again, err := assign.DecodeRecord(assign.EncodeRecord(&record)); err != nil || !reflect.DeepEqual(again, record) {
			t.Fatalf("a record is read as %+v, %v, want %+v", again, err, record)
		}
	}
	if forms[true] < 500 || forms[false] < 500 {
		t.Errorf("of the two forms there are %v", forms)
	}
}

// Of an assignment with a part that is not known, nothing is in force.
func TestDecodeTakesNoHalfOfParts(t *testing.T) {
	t.Parallel()
	const head = `{"etag":"1-1","domain":"d","entries":[{"Key":"a","Value":"b"}],`
	a, err := assign.Decode([]byte(head + `"parts":{"plan":["pro",""],"limit ":["{\"requests\":5}","9007199254740991"]}}`))
	if err != nil || a.Plan != "pro" || a.NumbersUntil[0] != assign.MaxMoment {
		t.Errorf("got %+v, %v", a, err)
	}
	for _, parts := range []string{
		`"parts":{}`,
		`"parts":{"plan":["pro",""],"later":["x",""]}`,
		`"parts":{"plan":["pro"]}`,
		`"parts":{"plan":["pro","",""]}`,
		`"parts":{"plan":["pro","0"]}`,
		`"parts":{"plan":["pro","-5"]}`,
		`"parts":{"plan":["pro","9007199254740992"]}`,
		`"parts":{"plan":["pro",5]}`,
		`"parts":{"plan":["",""]}`,
		`"parts":{"unlimited":["false",""]}`,
		`"parts":{"block":["",""]}`,
		`"parts":{"calendar":["",""]}`,
		`"parts":{"calendar":["{}",""]}`,
		`"parts":{"calendar":["{\"starts\":15}",""]}`,
		`"parts":{"calendar":["{\"starts\":\"15\",\"unit\":\"month\"}",""]}`,
		`"parts":{"calendar":["{\"starts\":\"` + strings.Repeat("1", 65) + `\"}",""]}`,
		`"parts":{"limit m":["",""]}`,
		`"parts":{"limit m":["{\"requests\":-1}",""]}`,
		`"parts":{"limit m":["{\"requests\":1,\"algorithm\":\"gcra\"}",""]}`,
		`"parts":{"limit m":["{\"requests\":1,\"limit\":\"n\"}",""]}`,
		`"parts":{"limit m":["{\"requests\":1}{}",""]}`,
		`"parts":{"plan":["pro",""]},"plan":"pro"`,
		`"parts":{"plan":["pro",""]},"until":5`,
		`"parts":{"plan":["pro",""]},"blocked":true`,
		`"unlimited":true,"plan":"pro"`,
		`"blocked":true,"until":5`,
	} {
		if a, err := assign.Decode([]byte(head + parts + "}")); err == nil {
			t.Errorf("%s is read as %+v", parts, a)
		}
	}
}
