package assign_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

func TestCheckSaysWhereWhatAndWhatIsAllowed(t *testing.T) {
	t.Parallel()
	numbers := func(n ...assign.Numbers) func(*assign.Assignment) {
		return func(a *assign.Assignment) { a.Plan, a.Numbers = "", n }
	}
	for _, tc := range []struct {
		change func(*assign.Assignment)
		want   string // empty: valid
	}{
		{func(*assign.Assignment) {}, ""},
		{numbers(assign.Numbers{}, assign.Numbers{Limit: "day", Requests: bucket.MaxRequests, Period: 366 * 24 * time.Hour, Burst: bucket.MaxRequests}), ""},
		{func(a *assign.Assignment) { a.Numbers = []assign.Numbers{{Requests: 5}} }, ""},
		{func(a *assign.Assignment) { a.Plan, a.Blocked = "", true }, ""},
		{func(a *assign.Assignment) { a.Domain = "" }, "domain: found an empty text; allowed: the name of a domain"},
		{func(a *assign.Assignment) { a.Domain = "a\x00" }, ""},
		{func(a *assign.Assignment) { a.Domain = "a\xff" }, `domain: found "a\xff"; allowed: UTF-8`},
		{func(a *assign.Assignment) { a.Entries[0].Key, a.Entries[0].Value = "\x00\u009b", "\x1b\n\u202e" }, ""},
		{func(a *assign.Assignment) { a.Reason = "a\xff" }, `reason: found "a\xff"; allowed: UTF-8`},
		{func(a *assign.Assignment) { a.Entries = nil }, "entries: found 0; allowed: 1 to 16"},
		{func(a *assign.Assignment) { a.Entries = make([]bucket.Entry, 17) }, "entries: found 17; allowed: 1 to 16"},
		{func(a *assign.Assignment) { a.Entries[0].Key = "" }, "entries[0].key: found an empty text; allowed: the key of an entry"},
		{func(a *assign.Assignment) { a.Entries[0].Value = "\xff" }, `entries[0].value: found "\xff"; allowed: UTF-8`},
		{func(a *assign.Assignment) { a.Entries[0].Value = strings.Repeat("x", 1024) }, "entries: found 1033 bytes; allowed: at most 1024, the domain's among them"},
		{func(a *assign.Assignment) { a.Plan = "" }, "assignment: found none of plan, numbers, calendar, unlimited and blocked; allowed: one or more of them"},
		{func(a *assign.Assignment) { a.Plan = strings.Repeat("x", 257) }, "plan: found 257 bytes; allowed: at most 256"},
		{func(a *assign.Assignment) { a.Blocked, a.BlockedUntil, a.PlanUntil = true, 5, 7 }, ""},
		{func(a *assign.Assignment) { a.Unlimited, a.UnlimitedUntil = true, 7 }, ""},
		{func(a *assign.Assignment) { a.Plan, a.Blocked, a.PlanUntil = "", true, 5 }, "plan_until: found it without plan; allowed: both"},
		{func(a *assign.Assignment) { a.UnlimitedUntil = 5 }, "unlimited_until: found it without unlimited; allowed: both"},
		{func(a *assign.Assignment) { a.NumbersUntil = []int64{5} }, "numbers: found 1 ends; allowed: as many as numbers"},
		{func(a *assign.Assignment) { a.Numbers, a.NumbersUntil = []assign.Numbers{{}}, []int64{-1} }, "numbers[0].until: found 1969"},
		{func(a *assign.Assignment) { a.BlockedUntil = 5 }, "blocked_until: found it without blocked; allowed: both"},
		{func(a *assign.Assignment) { a.Blocked, a.BlockedUntil = true, 1<<53 }, "blocked_until: found 2255-06-05T23:47:34Z; allowed: 1970"},
		{numbers(make([]assign.Numbers, 17)...), "numbers: found 17; allowed: at most 16"},
		{numbers(assign.Numbers{}, assign.Numbers{}), `numbers[1].limit: found the limit "" twice; allowed: each limit once`},
		{numbers(assign.Numbers{Requests: -1}), "numbers[0].requests: found -1; allowed: 0 to 4503599627370496"},
		{numbers(assign.Numbers{Burst: 1<<52 + 1}), "numbers[0].burst: found 4503599627370497; allowed: 0 to 4503599627370496"},
		{numbers(assign.Numbers{Period: time.Microsecond}), "numbers[0].period: found 1µs; allowed: 1ms to 366 days in whole milliseconds, or none for the limit's own"},
		{func(a *assign.Assignment) { a.PlanUntil = -1 }, "plan_until: found 1969-12-31T23:59:59Z; allowed: 1970-01-01T00:00:00Z to 2255-06-05T23:47:34Z"},
		{func(a *assign.Assignment) { a.PlanUntil = 1 << 53 }, "plan_until: found 2255-06-05T23:47:34Z; allowed: 1970"},
		{func(a *assign.Assignment) { a.Reason = "a\nb" }, `reason: found "a\nb"; allowed: a text without control characters`},
		{func(a *assign.Assignment) { a.By = strings.Repeat("é", 129) }, "made_by: found 258 bytes; allowed: at most 256"},
	} {
		a := plan("pro", subject("api", "tenant=acme"))
		tc.change(a)
		err := a.Check()
		if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
	a := plan("pro", subject("", "tenant=acme"))
	a.BlockedUntil = 1
	const both = "domain: found an empty text; allowed: the name of a domain\nblocked_until: found it without blocked; allowed: both"
	if err := a.Check(); err == nil || err.Error() != both {
		t.Errorf("two mistakes: got %v, want %s", err, both)
	}
}

// What is wrong with a very large assignment is said in few bytes.
func TestErrorsAreBounded(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("\x01", 1<<20)
	for name, a := range map[string]*assign.Assignment{
		"long texts": {
			Subject: assign.Subject{Domain: huge, Entries: []bucket.Entry{{Key: huge, Value: huge}, {Key: huge, Value: huge}}},
			Terms:   assign.Terms{Plan: huge, Numbers: []assign.Numbers{{Limit: huge}, {Limit: huge}}},
			Reason:  huge, By: huge,
		},
		"many entries and numbers": {
			Subject: assign.Subject{Entries: make([]bucket.Entry, 1<<16)},
			Terms:   assign.Terms{Numbers: make([]assign.Numbers, 1<<16)},
		},
	} {
		err := a.Check()
		if err == nil {
			t.Fatalf("%s: there is no error", name)
		}
		if n := len(err.Error()); n > 16<<10 {
			t.Errorf("%s: the error has %d bytes", name, n)
		}
	}
}

func TestNumbersHaveOneOrder(t *testing.T) {
	t.Parallel()
	given := []assign.Numbers{{Limit: "b"}, {Limit: ""}, {Limit: "a"}}
	got := assign.Assignment{Terms: assign.Terms{Numbers: given}, Ends: assign.Ends{NumbersUntil: []int64{2, 0, 1}}}.Canonical()
	want := []assign.Numbers{{Limit: ""}, {Limit: "a"}, {Limit: "b"}}
	if ends := []int64{0, 1, 2}; !reflect.DeepEqual(got.Numbers, want) || !reflect.DeepEqual(got.NumbersUntil, ends) {
		t.Errorf("got %v and %v, want %v and %v", got.Numbers, got.NumbersUntil, want, ends)
	}
	if given[0].Limit != "b" {
		t.Error("what was given has changed")
	}
}

func FuzzDecode(f *testing.F) {
	a := plan("pro", subject("api", "tenant=acme", "user=ann"))
	a.PlanUntil, a.By, a.At = 5, "ann", 7
	a.Numbers = []assign.Numbers{{Limit: "day", Requests: 5, Period: time.Second, Burst: 2}}
	f.Add(assign.Encode(a))
	a.NumbersUntil, a.Unlimited, a.Blocked = []int64{9}, true, true
	f.Add(assign.Encode(a))
	f.Add([]byte(`{"etag":"1","domain":"d","entries":[{"Key":"a","Value":"b"}],"blocked":true}`))
	f.Add([]byte(`{"domain":"d","entries":[{"Key":"a","Value":"b"}],"plan":"p","later":true}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := assign.Decode(text)
		if err != nil {
			return
		}
		if err := a.Check(); err != nil {
			t.Fatalf("%q: what was read is not valid: %v", text, err)
		}
		again, err := assign.Decode(assign.Encode(a))
		if err != nil || !reflect.DeepEqual(again, a) {
			t.Fatalf("%+v is read as %+v, %v", a, again, err)
		}
		assign.NewTable().Put(a)
	})
}

func TestDecodeTakesNoHalf(t *testing.T) {
	t.Parallel()
	whole := string(assign.Encode(plan("pro", subject("api", "tenant=acme"))))
	for _, text := range []string{
		"", "1", "null", "{}", whole[:len(whole)-1], whole + "{}", strings.Replace(whole, "plan", "later", 1),
		strings.Replace(whole, `"plan"`, `"quota":5,"plan"`, 1),
	} {
		if a, err := assign.Decode([]byte(text)); err == nil {
			t.Errorf("%s is read as %+v", text, a)
		}
	}
}
