package redislog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/assigntest"
	"github.com/ratelimitd/ratelimitd/internal/assign/redislog"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// raw is what Redis has of the one hash tag of a store.
type raw struct {
	*redis.Client
	assigned, changes string
}

func rawOf(t testing.TB, c redisconn.Options) raw {
	head := c.Prefix + "{" + hashTags(1)[0] + "}~"
	return raw{Client: redistest.Client(t, c.Addresses[0]), assigned: head + "assigned", changes: head + "changes"}
}

// wrongForms returns what is wrong with the forms of all that Redis has, or an empty text.
func (r raw) wrongForms(t testing.TB, form1 bool) string {
	t.Helper()
	fields := r.HGetAll(t.Context(), r.assigned).Val()
	delete(fields, "~epoch")
	texts := slices.Collect(maps.Values(fields))
	for _, m := range r.XRange(t.Context(), r.changes, "-", "+").Val() {
		for _, field := range []string{"before", "after"} {
			if text, _ := m.Values[field].(string); text != "" {
				texts = append(texts, text)
			}
		}
	}
	for _, text := range texts {
		a, err := assign.Decode([]byte(text))
		if err != nil {
			return fmt.Sprintf("%s: %v", text, err)
		}
		if wrong := assigntest.WrongForm([]byte(text), a); wrong != "" {
			return wrong
		}
		if form1 && strings.Contains(text, `"parts":`) {
			return text + " is in the form of parts"
		}
	}
	return ""
}

// TestScriptIsAsTheModel holds the script against Change.Apply, and what it writes against
// what versions before parts read; while daemons of these are there too, which refuses what
// they cannot read.
func TestScriptIsAsTheModel(t *testing.T) {
	t.Parallel()
	web := []string{"web-1:8081"}
	for name, old := range map[string]redislog.Old{"no old daemons": {}, "without parts": {NoParts: web, NoCalendar: web}, "without calendars": {NoCalendar: web}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := asynctest.NewClock()
			c := connOptions(redisconn.Single, redistest.Single(t))
			d := startLoaded(t, c, redislog.Options{HashTags: 1, Clock: clock.Micros, Old: func(context.Context) (redislog.Old, error) { return old, nil }})
			r := rand.New(rand.NewPCG(uint64(len(old.NoParts)+2*len(old.NoCalendar)), 9))
			m := assigntest.Model{}
			refused := 0
			for range 150 {
				clock.Move(time.Duration(r.IntN(3)) * time.Second)
				var changes []assign.Change
				for range 1 + r.IntN(12) {
					changes = append(changes, m.RandomChange(r, clock.Micros()))
				}
				applied, err := d.Apply(t.Context(), changes)
				if err != nil {
					t.Fatal(err)
				}
				hasRefused := false
				for i, got := range applied.Results {
					if got.Outcome == assign.NeedsParts {
						refused++
						hasRefused = true
						before, after, outcome := changes[i].Apply(m[changes[i].Assignment.Text()], clock.Micros())
						refusable := strings.Contains(string(assign.Encode(after)), `"parts":`)
						if old.NoParts == nil {
							refusable = after.Calendar != (assign.Calendar{})
						}
						if outcome != assign.Created && outcome != assign.Replaced || !refusable || !reflect.DeepEqual(got.Before, before) {
							t.Fatalf("%+v of %+v is refused", changes[i], before)
						}
						continue
					}
					if wrong := m.Apply(&changes[i], got, clock.Micros()); wrong != "" {
						t.Fatal(wrong)
					}
				}
				if hasRefused != (len(applied.Old) > 0) {
					t.Fatalf("of %d refused changes it names %v", refused, applied.Old)
				}
			}
			if wrong := rawOf(t, c).wrongForms(t, old.NoParts != nil); wrong != "" {
				t.Error(wrong)
			}
			if (refused > 0) != (old.NoCalendar != nil) {
				t.Errorf("%d changes are refused", refused)
			}
			again := startLoaded(t, c, redislog.Options{HashTags: 1, Clock: clock.Micros})
			for _, a := range m {
				if got, want := again.Table().Get(a.Subject).InForce(clock.Micros()), a.InForce(clock.Micros()); !reflect.DeepEqual(got, want) {
					t.Errorf("loaded again: got %+v, want %+v", got, want)
				}
			}
		})
	}
}

// parted is a change that needs the form with parts.
func parted(s assign.Subject) assign.Change {
	c := assigntest.Plan(s, "pro")
	c.Assignment.Numbers, c.Assignment.NumbersUntil = []assign.Numbers{{Limit: "month", Requests: 5}}, []int64{assign.MaxMoment}
	return c
}

// While it is not known which daemons there are, nothing is written that one of them might
// not read.
func TestUnknownRegisterRefusesParts(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	d := startLoaded(t, c, redislog.Options{Old: func(context.Context) (redislog.Old, error) { return redislog.Old{}, errors.New("the register is away") }})
	applied, err := d.Apply(t.Context(), []assign.Change{parted(assigntest.Subject("api", "a")), assigntest.Plan(assigntest.Subject("api", "b"), "pro")})
	if err != nil || applied.Results[0].Outcome != assign.NeedsParts || applied.Results[1].Outcome != assign.Created || !strings.Contains(fmt.Sprint(applied.Old), "the register is away") {
		t.Errorf("got %+v, %v", applied, err)
	}
}

// What the version before parts has written is read, followed and changed.
func TestAssignmentsFromBeforePartsAreReadOn(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/before_parts.json")
	if err != nil {
		t.Fatal(err)
	}
	var written struct {
		Assigned map[string]string
		Changes  []map[string]string
	}
	if err := json.Unmarshal(text, &written); err != nil {
		t.Fatal(err)
	}
	c := connOptions(redisconn.Single, redistest.Single(t))
	r := rawOf(t, c)
	put := func() {
		for text, value := range written.Assigned {
			r.HSet(t.Context(), r.assigned, text, value)
		}
		for _, change := range written.Changes {
			id := change["id"]
			values := map[string]string{}
			for k, v := range change {
				if k != "id" {
					values[k] = v
				}
			}
			if err := r.XAdd(t.Context(), &redis.XAddArgs{Stream: r.changes, ID: id, Values: values}).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	follower := startLoaded(t, c, redislog.Options{HashTags: 1})
	put()
	asynctest.Eventually(t, "what is written is followed", func() bool { return follower.Table().Len() == len(written.Assigned) })
	if wrong := assigntest.WrongWrittenBefore(follower.Table()); wrong != "" {
		t.Error("followed: ", wrong)
	}
	d := startLoaded(t, c, redislog.Options{HashTags: 1})
	if wrong := assigntest.WrongWrittenBefore(d.Table()); wrong != "" {
		t.Error("loaded: ", wrong)
	}
	if records := recordsOf(t, d); len(records) != len(written.Changes) || records[0].Before == nil || records[1].After == nil {
		t.Errorf("%d records: %+v", len(records), records)
	}
	for value, a := range assigntest.WrittenBefore() {
		same := assign.Change{Assignment: *a}
		block := assign.Change{Assignment: assign.Assignment{Subject: a.Subject, Terms: assign.Terms{Blocked: true}, Ends: assign.Ends{BlockedUntil: assign.MaxMoment}}}
		held := d.Table().Get(a.Subject)
		results := assigntest.Apply(t, d, same, block)
		if results[0].Outcome != assign.Unchanged || !reflect.DeepEqual(results[0].Before, held) {
			t.Errorf("%s: the same again: %+v", value, results[0])
		}
		want := *held
		want.Blocked, want.BlockedUntil, want.Reason, want.By, want.At, want.ETag = true, assign.MaxMoment, "", "", results[1].After.At, results[1].After.ETag
		if !reflect.DeepEqual(results[1].After, &want) {
			t.Errorf("%s: with a block: %+v, want %+v", value, results[1].After, want)
		}
	}
	if wrong := r.wrongForms(t, true); wrong != "" {
		t.Error(wrong)
	}
}

// Parts of a later version are carried as they are by a change of others, though nothing of
// them is in force here; a change that says the whole removes them.
func TestPartsOfALaterVersionAreCarried(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	r := rawOf(t, c)
	subject := assigntest.Subject("api", "a")
	const later = `{"a":[],"b":{},"c":90071992547409931,"d":"\u00e9/\u2028","e":1e2}`
	quoted, _ := json.Marshal(later)
	r.HSet(t.Context(), r.assigned, subject.Text(), fmt.Sprintf(`{"etag":"5-5","domain":"api","entries":[{"Key":"tenant","Value":"a"}],"parts":{"later":[%s,"9007199254740991"],"plan":["pro",""]}}`, quoted))
	var log asynctest.Buffer
	d := startLoaded(t, c, redislog.Options{HashTags: 1, Log: textLog(&log)})
	if got := d.Table().Get(subject); got != nil {
		t.Errorf("half of it is in force: %+v", got)
	}
	parts := func() map[string][]string {
		var value struct{ Parts map[string][]string }
		if err := json.Unmarshal([]byte(r.HGet(t.Context(), r.assigned, subject.Text()).Val()), &value); err != nil {
			t.Fatal(err)
		}
		return value.Parts
	}
	applied, err := d.Apply(t.Context(), []assign.Change{assigntest.Plan(subject, "free")})
	want := map[string][]string{"later": {later, "9007199254740991"}, "plan": {"free", ""}}
	if got := parts(); err != nil || applied.Results[0].Outcome != assign.Replaced || !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, %+v, %v, want %q", got, applied, err, want)
	}
	block := assigntest.Plan(subject, "")
	block.Assignment.Blocked, block.Remove.Rest = true, true
	if after := assigntest.Apply(t, d, block)[0].After; after == nil || !after.Blocked || after.HasMore() || parts() != nil {
		t.Errorf("the whole leaves %+v and %v", after, parts())
	}
}

// Ends of both forms are swept.
func TestPartsThatHaveEndedAreSwept(t *testing.T) {
	t.Parallel()
	clock := asynctest.NewClock()
	c := connOptions(redisconn.Single, redistest.Single(t))
	d := startLoaded(t, c, redislog.Options{HashTags: 1, Clock: clock.Micros})
	ends, stays := parted(assigntest.Subject("api", "ends")), parted(assigntest.Subject("api", "stays"))
	ends.Assignment.PlanUntil, ends.Assignment.NumbersUntil = clock.Micros()+1e6, []int64{clock.Micros() + 2e6}
	stays.Assignment.NumbersUntil = ends.Assignment.NumbersUntil
	assigntest.Apply(t, d, ends, stays)
	for _, left := range []int64{2, 1} {
		clock.Move(time.Second)
		if err := d.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		// The epoch is there too.
		if n := rawOf(t, c).HLen(t.Context(), rawOf(t, c).assigned).Val(); n != left+1 || d.Table().Len() != int(left) {
			t.Errorf("%d and %d are left, want %d", n, d.Table().Len(), left)
		}
	}
}
