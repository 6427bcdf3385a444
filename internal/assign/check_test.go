package assign_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

func TestCheckSaysWhereWhatAndWhatIsAllowed(t *testing.T) {
	t.Parallel()
	numbers := func(n ...assign.Numbers) func(*assign.Assignment) {
		return func(a *assign.Assignment) { a.Base.Plan, a.Base.Numbers = "", n }
	}
	layers := func(l ...assign.Layer) func(*assign.Assignment) {
		return func(a *assign.Assignment) { a.Layers = l }
	}
	relief := assign.Layer{Terms: assign.Terms{Plan: "p"}, Until: 5}
	block := assign.Layer{Terms: assign.Terms{Blocked: true}, Until: 5}
	for _, tc := range []struct {
		change func(*assign.Assignment)
		want   string // empty: valid
	}{
		{func(*assign.Assignment) {}, ""},
		{numbers(assign.Numbers{}, assign.Numbers{Limit: "day", Requests: bucket.MaxRequests, Period: 366 * 24 * time.Hour, Burst: bucket.MaxRequests}), ""},
		{func(a *assign.Assignment) { a.Base.Plan, a.Base.Blocked = "", true }, ""},
		{func(a *assign.Assignment) { a.Domain = "" }, "domain: found an empty text; allowed: the name of a domain"},
		{func(a *assign.Assignment) { a.Domain = "a\x00" }, ""},
		{func(a *assign.Assignment) { a.Domain = "a\xff" }, `domain: found "a\xff"; allowed: UTF-8`},
		{func(a *assign.Assignment) { a.Entries[0].Key, a.Entries[0].Value = "\x00\u009b", "\x1b\n\u202e" }, ""},
		{func(a *assign.Assignment) { a.Base.Reason = "a\xff" }, `reason: found "a\xff"; allowed: UTF-8`},
		{func(a *assign.Assignment) { a.Entries = nil }, "entries: found 0; allowed: 1 to 16"},
		{func(a *assign.Assignment) { a.Entries = make([]bucket.Entry, 17) }, "entries: found 17; allowed: 1 to 16"},
		{func(a *assign.Assignment) { a.Entries[0].Key = "" }, "entries[0].key: found an empty text; allowed: the key of an entry"},
		{func(a *assign.Assignment) { a.Entries[0].Value = "\xff" }, `entries[0].value: found "\xff"; allowed: UTF-8`},
		{func(a *assign.Assignment) { a.Entries[0].Value = strings.Repeat("x", 1024) }, "entries: found 1033 bytes; allowed: at most 1024, the domain's among them"},
		{func(a *assign.Assignment) { a.Base.Plan = "" }, "assignment: found none of plan, numbers, calendar, unlimited and blocked; allowed: one or more of them"},
		{func(a *assign.Assignment) { a.Base.Plan = strings.Repeat("x", 257) }, "plan: found 257 bytes; allowed: at most 256"},
		{func(a *assign.Assignment) { a.Base.Until = 5 }, "until: found an end of the base; allowed: none"},
		{layers(relief, block), ""},
		{layers(assign.Layer{Until: 5}), "layers[0].assignment: found none of plan,"},
		{layers(relief, assign.Layer{Terms: assign.Terms{Blocked: true}}), "layers[1].until: found none; allowed: the end of a temporary layer"},
		{layers(assign.Layer{Terms: assign.Terms{Plan: strings.Repeat("x", 257)}, Until: 5}), "layers[0].plan: found 257 bytes"},
		{layers(assign.Layer{Terms: assign.Terms{Plan: "p"}, Until: -1}), "layers[0].until: found 1969-12-31T23:59:59Z; allowed: 1970-01-01T00:00:00Z to 2255-06-05T23:47:34Z"},
		{layers(assign.Layer{Terms: assign.Terms{Plan: "p"}, Until: 1 << 53}), "layers[0].until: found 2255-06-05T23:47:34Z; allowed: 1970"},
		{layers(relief, relief, relief, relief, relief, relief, relief, relief, block), ""},
		{layers(relief, relief, relief, relief, relief, relief, relief, relief, relief), "layers: found 9; allowed: at most 8, and one that only blocks"},
		{layers(make([]assign.Layer, 10)...), "layers: found 10; allowed: at most 8, and one that only blocks"},
		{func(a *assign.Assignment) {
			for i := range 17 {
				l := &a.Base
				if i > 12 {
					a.Layers = append(a.Layers, assign.Layer{Until: 5})
					l = &a.Layers[i-13]
				}
				l.Numbers = append(l.Numbers, assign.Numbers{Limit: string(rune('a' + i))})
			}
		}, "numbers: found 17 limits; allowed: at most 16, in all layers"},
		{numbers(make([]assign.Numbers, 17)...), "numbers: found 17; allowed: at most 16"},
		{numbers(assign.Numbers{}, assign.Numbers{}), `numbers[1].limit: found the limit "" twice; allowed: each limit once`},
		{numbers(assign.Numbers{Requests: -1}), "numbers[0].requests: found -1; allowed: 0 to 4503599627370496"},
		{numbers(assign.Numbers{Burst: 1<<52 + 1}), "numbers[0].burst: found 4503599627370497; allowed: 0 to 4503599627370496"},
		{numbers(assign.Numbers{Period: time.Microsecond}), "numbers[0].period: found 1µs; allowed: 1ms to 366 days in whole milliseconds, or none for the limit's own"},
		{func(a *assign.Assignment) { a.Base.Reason = "a\nb" }, `reason: found "a\nb"; allowed: a text without control characters`},
		{func(a *assign.Assignment) { a.Base.By = strings.Repeat("é", 129) }, "made_by: found 258 bytes; allowed: at most 256"},
	} {
		a := plan("pro", subject("api", "tenant=acme"))
		tc.change(a)
		err := a.Check()
		if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
	a := plan("pro", subject("", "tenant=acme"))
	a.Base.By = "\n"
	const both = "domain: found an empty text; allowed: the name of a domain\nmade_by: found \"\\n\"; allowed: a text without control characters"
	if err := a.Check(); err == nil || err.Error() != both {
		t.Errorf("two mistakes: got %v, want %s", err, both)
	}
}

func TestChangesAreChecked(t *testing.T) {
	t.Parallel()
	planned := assign.Layer{Terms: assign.Terms{Plan: "p"}}
	whole := plan("p", subject("api", "tenant=acme"))
	for _, tc := range []struct {
		change assign.Change
		want   string // empty: valid
	}{
		{assign.Change{Set: []assign.Layer{planned}}, ""},
		{assign.Change{Set: []assign.Layer{planned, planned}, Remove: assign.Parts{Rest: true}, IfMatch: assign.IfNone}, ""},
		{assign.Change{Remove: assign.Parts{Temporary: true}}, ""},
		{assign.Change{Remove: assign.Parts{Limits: []string{"a"}}}, ""},
		{assign.Change{Whole: whole}, ""},
		{assign.Change{Whole: new(assign.Assignment)}, ""},
		{assign.Change{}, "assignment: found no part to set or to remove; allowed: one or more of plan, numbers, calendar, unlimited and blocked"},
		{assign.Change{Set: []assign.Layer{{}}}, "assignment: found none of plan,"},
		{assign.Change{Set: []assign.Layer{planned, {Terms: planned.Terms, Until: -1}}}, "set[1].until: found 1969"},
		{assign.Change{Set: []assign.Layer{{Terms: planned.Terms, Until: -1}}}, "until: found 1969"},
		{assign.Change{Set: make([]assign.Layer, 11)}, "set: found 11; allowed: 0 to 10"},
		{assign.Change{Remove: assign.Parts{Limits: make([]string, 17)}}, "remove_limits: found 17; allowed: 0 to 16"},
		{assign.Change{Remove: assign.Parts{Limits: []string{"a", "\n"}}}, "remove_limits[1]: found"},
		{assign.Change{Remove: assign.Parts{Rest: true}, Reason: "\n"}, "reason: found"},
		{assign.Change{Remove: assign.Parts{Rest: true}, By: "\n"}, "made_by: found"},
		{assign.Change{Whole: &assign.Assignment{Layers: []assign.Layer{planned}}}, "layers[0].until: found none"},
	} {
		tc.change.Subject = subject("api", "tenant=acme")
		err := tc.change.Check()
		if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: got %v, want %q", tc.change, err, tc.want)
		}
	}
	if err := (&assign.Change{Set: []assign.Layer{planned}}).Check(); err == nil {
		t.Error("a change of no subject is valid")
	}
}

// What is wrong with a very large assignment is said in few bytes.
func TestErrorsAreBounded(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("\x01", 1<<20)
	for name, a := range map[string]*assign.Assignment{
		"long texts": {
			Subject: assign.Subject{Domain: huge, Entries: []bucket.Entry{{Key: huge, Value: huge}, {Key: huge, Value: huge}}},
			Base:    assign.Layer{Terms: assign.Terms{Plan: huge, Numbers: []assign.Numbers{{Limit: huge}, {Limit: huge}}}, Reason: huge, By: huge},
		},
		"many entries, numbers and layers": {
			Layers:  make([]assign.Layer, 1<<16),
			Subject: assign.Subject{Entries: make([]bucket.Entry, 1<<16)},
			Base:    assign.Layer{Terms: assign.Terms{Numbers: make([]assign.Numbers, 1<<16)}},
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
