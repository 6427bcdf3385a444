package assign_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
)

// subject returns a subject with the entries "key=value".
func subject(domain string, entries ...string) assign.Subject {
	s := assign.Subject{Domain: domain}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		s.Entries = append(s.Entries, bucket.Entry{Key: key, Value: value})
	}
	return s
}

func plan(name string, s assign.Subject) *assign.Assignment {
	return &assign.Assignment{Subject: s, Base: assign.Layer{Terms: assign.Terms{Plan: name}}, ETag: "1"}
}

// on returns an assignment with a temporary layer on top.
func on(a *assign.Assignment, terms assign.Terms, until int64) *assign.Assignment {
	a.Layers = append(a.Layers, assign.Layer{Terms: terms, Until: until})
	return a
}

// says is what Find found, in short.
func says(f assign.Found) string {
	var parts []string
	for _, p := range []struct {
		name string
		held *assign.Held
	}{{"blocked", f.Blocked}, {"own", f.Own}, {"plan", f.Plan}} {
		if p.held != nil {
			text := p.name + " by " + p.held.Plan(f.Now)
			if p.name == "blocked" {
				text += fmt.Sprint(p.held.BlockEnd(f.Now))
			}
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, ", ")
}

// listed returns a page of a table, and the token of the next one.
func listed(table *assign.Table, q assign.Query) (page []*assign.Assignment, next string, _ error) {
	next, err := table.Each(q, func(a *assign.Assignment) bool {
		page = append(page, a)
		return true
	})
	return page, next, err
}

func TestFindTakesTheShortestBlockAndTheLongestPlan(t *testing.T) {
	t.Parallel()
	table := assign.NewTable()
	nothing := func(s assign.Subject) *assign.Assignment { return &assign.Assignment{Subject: s} }
	block, plans := assign.Terms{Blocked: true}, func(name string) assign.Terms { return assign.Terms{Plan: name} }
	for _, a := range []*assign.Assignment{
		plan("pro", subject("api", "tenant=acme")),
		on(nothing(subject("api", "tenant=acme", "user=ann")), plans("trial"), 100),
		on(nothing(subject("api", "tenant=acme", "user=bob")), block, 50),
		on(nothing(subject("api", "tenant=acme", "user=bob", "path=/")), block, 80),
		on(on(nothing(subject("api", "tenant=acme", "user=dan")), plans("gone"), 40), block, 60),
		on(on(nothing(subject("api", "tenant=acme", "user=eve")), plans("back"), 60), block, 40),
		on(plan("base", subject("api", "tenant=acme", "user=fay")), plans("top"), 50),
		{Subject: subject("api", "tenant=acme", "user=cid"), Base: assign.Layer{Terms: assign.Terms{Unlimited: true}}},
	} {
		table.Put(a)
	}
	for _, tc := range []struct {
		now     int64
		entries []string
		want    string
	}{
		{10, []string{"tenant=acme"}, "own by pro, plan by pro"},
		{10, []string{"tenant=acme", "user=ann"}, "own by trial, plan by trial"},
		{99, []string{"tenant=acme", "user=ann", "path=/"}, "plan by trial"},
		{100, []string{"tenant=acme", "user=ann"}, "plan by pro"},
		{10, []string{"tenant=acme", "user=bob", "path=/", "verb=GET"}, "blocked by 50, plan by pro"},
		{50, []string{"tenant=acme", "user=bob", "path=/"}, "blocked by 80, plan by pro"},
		{80, []string{"tenant=acme", "user=bob", "path=/"}, "plan by pro"},
		{39, []string{"tenant=acme", "user=dan"}, "blocked by gone60, own by gone, plan by gone"},
		{40, []string{"tenant=acme", "user=dan"}, "blocked by 60, plan by pro"},
		{60, []string{"tenant=acme", "user=dan"}, "plan by pro"},
		{39, []string{"tenant=acme", "user=eve"}, "blocked by back40, own by back, plan by back"},
		{40, []string{"tenant=acme", "user=eve"}, "own by back, plan by back"},
		{60, []string{"tenant=acme", "user=eve"}, "plan by pro"},
		{49, []string{"tenant=acme", "user=fay"}, "own by top, plan by top"},
		{50, []string{"tenant=acme", "user=fay", "path=/"}, "plan by base"},
		{10, []string{"tenant=acme", "user=cid"}, "own by , plan by pro"},
		{10, []string{"tenant=acme", "user=cid", "path=/"}, "plan by pro"},
		{10, []string{"user=ann", "tenant=acme"}, ""},
		{10, []string{"tenant=acm"}, ""},
		{10, nil, ""},
	} {
		f := table.Domain("api").Find(subject("api", tc.entries...).Entries, func() int64 { return tc.now })
		if got := says(f); got != tc.want {
			t.Errorf("at %d, %v: got %q, want %q", tc.now, tc.entries, got, tc.want)
		}
	}
	if d := table.Domain("other"); d != nil {
		t.Errorf("a domain without assignments has %v", d)
	}
}

// TestSubjectsAreComparedAsTuples has subjects whose entries print alike.
func TestSubjectsAreComparedAsTuples(t *testing.T) {
	t.Parallel()
	alike := []assign.Subject{
		{Domain: "d", Entries: []bucket.Entry{{Key: "a", Value: "b / c=d"}}},
		{Domain: "d", Entries: []bucket.Entry{{Key: "a", Value: "b"}, {Key: "c", Value: "d"}}},
		{Domain: "d", Entries: []bucket.Entry{{Key: "a=b / c", Value: "d"}}},
	}
	for i, put := range alike {
		table := assign.NewTable()
		table.Put(plan("p", put))
		for j, asked := range alike {
			if found := table.Domain("d").Find(asked.Entries, nil).Own != nil; found != (i == j) {
				t.Errorf("of %v, %v is found: %t", put, asked, found)
			}
			if got := table.Get(asked); (got != nil) != (i == j) || got != nil && !reflect.DeepEqual(got.Subject, put) {
				t.Errorf("of %v, %v gets %v", put, asked, got)
			}
		}
	}
}

func TestVeryLongDescriptorsHaveNothing(t *testing.T) {
	t.Parallel()
	table := assign.NewTable()
	table.Put(plan("p", subject("d", "a=b")))
	entries := []bucket.Entry{{Key: "a", Value: "b"}}
	for range 40 {
		entries = append(entries, bucket.Entry{Key: "long", Value: strings.Repeat("x", 70_000)})
	}
	if got := says(table.Domain("d").Find(entries, nil)); got != "plan by p" {
		t.Errorf("got %q", got)
	}
	if got := says(table.Domain("d").Find(entries[1:], nil)); got != "" {
		t.Errorf("got %q", got)
	}
}

// A descriptor may have any bytes, those that stand between entries in a name too.
func TestDescriptorsThatAreNoTextHaveNothing(t *testing.T) {
	t.Parallel()
	table := assign.NewTable()
	table.Put(plan("p", subject("d", "a=b", "c=d")))
	table.Put(plan("p", subject("d", "a=b")))
	for _, entries := range [][]bucket.Entry{
		{{Key: "a", Value: "b / \xffc=\xffd"}},
		{{Key: "a=\xffb / \xffc", Value: "d"}},
		{{Key: "a", Value: "b / \xffc=\xffd"}, {Key: "c", Value: "d"}},
		{{Key: "a", Value: "b\xff"}},
		{{Key: "a", Value: "b\x01"}},
	} {
		if got := says(table.Domain("d").Find(entries, nil)); got != "" {
			t.Errorf("%q: got %q", entries, got)
		}
	}
}

// model is a table that is slow and obviously right.
type model map[string]*assign.Assignment

// find says what a table should find.
func (m model) find(domain string, entries []bucket.Entry, now int64) string {
	var blocked, own, plan *assign.Assignment
	for n := 1; n <= len(entries); n++ {
		a := m[fmt.Sprintf("%q", assign.Subject{Domain: domain, Entries: entries[:n]})]
		left := a.InForce(now)
		if left == nil {
			continue
		}
		now := left.Now()
		if blocked == nil && now.Blocked {
			blocked = left
		}
		if now.Plan != "" {
			plan = left
		}
		if n == len(entries) && now.HasMore() {
			own = left
		}
	}
	var parts []string
	if blocked != nil {
		end := int64(0)
		for _, l := range blocked.Layers {
			if l.Blocked {
				end = l.Until
			}
		}
		parts = append(parts, fmt.Sprint("blocked by ", blocked.Now().Plan, end))
	}
	if own != nil {
		parts = append(parts, "own by "+own.Now().Plan)
	}
	if plan != nil {
		parts = append(parts, "plan by "+plan.Now().Plan)
	}
	return strings.Join(parts, ", ")
}

// random subjects and terms of few kinds, so that they meet.
func randomSubject(r *rand.Rand) assign.Subject {
	s := assign.Subject{Domain: fmt.Sprint("d", r.IntN(3))}
	for range 1 + r.IntN(4) {
		s.Entries = append(s.Entries, bucket.Entry{Key: string("ab="[r.IntN(3)]), Value: []string{"x", "y", "x / a=x", ""}[r.IntN(4)]})
	}
	return s
}

func randomAssignment(r *rand.Rand) *assign.Assignment {
	c := assign.Change{Subject: randomSubject(r)}
	for range 1 + r.IntN(3) {
		l := assign.Layer{Terms: assign.Terms{Unlimited: r.IntN(4) == 0}, By: "b", Reason: fmt.Sprint(r.IntN(5)), At: 3}
		if r.IntN(2) == 0 {
			l.Until = int64(20 * (1 + r.IntN(5)))
		}
		if r.IntN(2) == 0 {
			l.Plan = fmt.Sprint("p", r.IntN(3))
		}
		for _, limit := range []string{"", "day"} {
			if r.IntN(3) == 0 {
				l.Numbers = append(l.Numbers, assign.Numbers{Limit: limit, Requests: int64(r.IntN(3))})
			}
		}
		l.Blocked = !l.HasMore() || r.IntN(4) == 0
		c.Set = append(c.Set, l)
	}
	_, a, _ := c.Apply(nil, 1)
	a.Stamp(fmt.Sprint(r.IntN(1000)), 5)
	return a
}

func TestTableIsAsTheModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range soaktest.Long(20, 50) {
		table, m := assign.NewTable(), model{}
		for range 400 {
			if r.IntN(3) > 0 {
				a := randomAssignment(r)
				table.Put(a)
				m[fmt.Sprintf("%q", a.Subject)] = a
			} else {
				s := randomSubject(r)
				key, etag := fmt.Sprintf("%q", s), []string{"", "7"}[r.IntN(2)]
				had := m[key] != nil && (etag == "" || m[key].ETag == etag)
				if got := table.Delete(s, etag); got != had {
					t.Fatalf("Delete(%v, %q) = %t, want %t", s, etag, got, had)
				}
				if had {
					delete(m, key)
				}
			}
			s, now := randomSubject(r), int64(r.IntN(100))
			want := m.find(s.Domain, s.Entries, now)
			got := ""
			if d := table.Domain(s.Domain); d != nil {
				got = says(d.Find(s.Entries, func() int64 { return now }))
			}
			if got != want {
				t.Fatalf("Find(%v) = %q, want %q", s, got, want)
			}
			checkOwn(t, table, s, m[fmt.Sprintf("%q", s)].InForce(now), now)
			if got, want := table.Get(s), m[fmt.Sprintf("%q", s)]; !reflect.DeepEqual(got, want) {
				t.Fatalf("Get(%v) = %v, want %v", s, got, want)
			}
		}
		checkList(t, r, table, m)
	}
}

// checkOwn holds the parts of what is found for a subject against what is in force.
func checkOwn(t *testing.T, table *assign.Table, s assign.Subject, want *assign.Assignment, now int64) {
	t.Helper()
	d := table.Domain(s.Domain)
	if d == nil || want == nil {
		return
	}
	f := d.Find(s.Entries, func() int64 { return now })
	terms := want.Now()
	if terms.HasMore() != (f.Own != nil) {
		t.Fatalf("of %+v at %d: got %+v", want, now, f.Own)
	}
	if f.Own == nil {
		return
	}
	if f.Own.Frees(f.Now) != terms.Unlimited {
		t.Fatalf("of %+v at %d: it frees %t", want, now, !terms.Unlimited)
	}
	for _, limit := range []string{"", "day", "none"} {
		i := slices.IndexFunc(terms.Numbers, func(n assign.Numbers) bool { return n.Limit == limit })
		got, ok := f.Own.NumbersOf(limit, f.Now)
		if ok != (i >= 0) || ok && (got != terms.Numbers[i] || !f.Own.MayChangeLimits()) {
			t.Fatalf("of %+v at %d: the numbers of %q are %v", want, now, limit, got)
		}
	}
}

// checkList holds all pages of a random query against the model.
func checkList(t *testing.T, r *rand.Rand, table *assign.Table, m model) {
	t.Helper()
	q := assign.Query{
		Domain:  []string{"", "d1", "none"}[r.IntN(3)],
		Prefix:  []string{"", "a", "a=x", "a=x / a", "=="}[r.IntN(5)],
		Plan:    []string{"", "p1"}[r.IntN(2)],
		Blocked: r.IntN(4) == 0,
		Now:     []int64{0, 50}[r.IntN(2)],
		Max:     1 + r.IntN(20),
	}
	var want []*assign.Assignment
	counts := map[string]int{}
	for _, a := range m {
		counts[a.Domain]++
		left := a.InForce(q.Now)
		if left == nil || q.Domain != "" && a.Domain != q.Domain || !strings.HasPrefix(assign.Print(a.Entries), q.Prefix) ||
			q.Plan != "" && left.Now().Plan != q.Plan || q.Blocked && !left.Now().Blocked {
			continue
		}
		want = append(want, a)
	}
	byPrint := func(a, b *assign.Assignment) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(assign.Print(a.Entries), assign.Print(b.Entries)), slices.Compare(flat(a), flat(b)))
	}
	slices.SortFunc(want, byPrint)
	var got []*assign.Assignment
	for {
		page, next, err := listed(table, q)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, page...)
		if next == "" {
			break
		}
		if len(page) != q.Max {
			t.Fatalf("a page of %d that is not the last has %d", q.Max, len(page))
		}
		q.After = next
	}
	if !slices.IsSortedFunc(got, func(a, b *assign.Assignment) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(assign.Print(a.Entries), assign.Print(b.Entries)))
	}) {
		t.Fatalf("%+v is not sorted", got)
	}
	slices.SortStableFunc(got, byPrint)
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("List(%+v) has %d, want %d", q, len(got), len(want))
	}
	if table.Len() != len(m) || table.Count("d1") != counts["d1"] {
		t.Fatalf("%d, %d of d1; want %d, %d", table.Len(), table.Count("d1"), len(m), counts["d1"])
	}
}

func flat(a *assign.Assignment) (all []string) {
	for _, e := range a.Entries {
		all = append(all, e.Key, e.Value)
	}
	return all
}

// A page goes on behind a subject of any characters, its domain's too.
func TestPagesOfAnyCharacters(t *testing.T) {
	t.Parallel()
	table := assign.NewTable()
	var want []assign.Subject
	for _, domain := range []string{"a", "a\x00", "a\x00\x00b=c\n", "\x00"} {
		for _, entry := range []string{"k=v", "k\x00=\x00", "\x00=\x1b / k=\u202e"} {
			s := subject(domain, entry)
			want = append(want, s)
			table.Put(plan("p", s))
		}
	}
	got := map[string]int{}
	for q := (assign.Query{Max: 1}); ; {
		page, next, err := listed(table, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range page {
			got[a.Text()]++
		}
		if q.After = next; next == "" {
			break
		}
	}
	for _, s := range want {
		if got[s.Text()] != 1 {
			t.Errorf("%q is listed %d times", s, got[s.Text()])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d are listed, want %d", len(got), len(want))
	}
}

func TestForeignPageTokensAreRefused(t *testing.T) {
	t.Parallel()
	table := assign.NewTable()
	for _, token := range []string{"x", "!", "YQD_"} {
		if _, _, err := listed(table, assign.Query{Max: 1, After: token}); !errors.Is(err, assign.ErrPageToken) {
			t.Errorf("of the token %q: %v", token, err)
		}
	}
}

// A prefix that is longer than any name chooses nothing, and leaves the table usable.
func TestLongPrefixesChooseNothing(t *testing.T) {
	t.Parallel()
	table := assign.NewTable()
	table.Put(plan("p", subject("d", "tenant=acme")))
	for _, n := range []int{1024, 2000, 65_534, 65_535, 65_536, 65_600, 4 << 20} {
		page, next, err := listed(table, assign.Query{Domain: "d", Prefix: strings.Repeat("a", n), Max: 1})
		if len(page) != 0 || next != "" || err != nil {
			t.Errorf("of a prefix of %d bytes: %v, %q, %v", n, page, next, err)
		}
	}
	table.Put(plan("p", subject("d", "tenant=other"))) // which needs the lock
}

// A page reads some of many, and the next goes on from there.
func TestPagesOfFewAmongManyAreBounded(t *testing.T) {
	t.Parallel()
	table := assign.NewTable()
	const many, maxScanned = 120_000, 50_000
	for i := range many {
		table.Put(plan("free", subject("d", fmt.Sprintf("tenant=%06d", i))))
	}
	table.Put(plan("pro", subject("d", "tenant=099999")))
	q := assign.Query{Plan: "pro", Max: 10}
	var sizes []int
	for {
		page, next, err := listed(table, q)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(page))
		if q.After = next; next == "" {
			break
		}
	}
	if want := []int{0, 1, 0}; !slices.Equal(sizes, want) {
		t.Errorf("%d among %d: pages of %v, want %v, each of which reads %d", 1, many, sizes, want, maxScanned)
	}
}

// TestReadersNeverMissWhatStays has a writer that changes all around an assignment
// that stays.
func TestReadersNeverMissWhatStays(t *testing.T) {
	t.Parallel()
	table := assign.NewTable()
	stays := subject("d", "tenant=stays")
	table.Put(plan("p", stays))
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if table.Domain("d").Find(stays.Entries, nil).Own == nil {
					t.Error("missed")
					return
				}
				if page, _, err := listed(table, assign.Query{Max: 10, Prefix: "tenant=stays"}); err != nil || len(page) != 1 {
					t.Errorf("a list has %v, %v", page, err)
					return
				}
			}
		})
	}
	for i := range 3000 {
		table.Put(plan("p", stays))
		table.Put(plan("q", subject("d", fmt.Sprint("tenant=", i))))
		table.Delete(subject("d", fmt.Sprint("tenant=", i-100)), "")
	}
	close(done)
	readers.Wait()
}

// A decision finds what is assigned without garbage.
func TestFindAllocatesNothing(t *testing.T) {
	table := assign.NewTable()
	fillWith(table, 10, func(a *assign.Assignment, i int) {
		a.Base.Numbers = []assign.Numbers{{Limit: "day", Requests: 5}}
		if i == 5 {
			on(a, assign.Terms{Plan: "gold", Blocked: true, Numbers: []assign.Numbers{{Limit: "month", Requests: 500}}}, 1_790_000_000_000_000)
		}
	})
	now := func() int64 { return 1_780_000_000_000_000 }
	for i := range 10 {
		entries := subject("api", fmt.Sprintf("tenant=acme-%06d", i), "user=ann").Entries
		n := testing.AllocsPerRun(100, func() {
			for size := range 3 {
				f := table.Domain("api").Find(entries[:size], now)
				if f.Own != nil {
					f.Own.NumbersOf("day", f.Now)
					f.Own.NumbersOf("month", f.Now)
					f.Own.Frees(f.Now)
				}
			}
		})
		if n != 0 {
			t.Errorf("of number %d there are %v allocations", i, n)
		}
	}
}

// fillWith puts n assignments of usual length, each changed by change.
func fillWith(table *assign.Table, n int, change func(*assign.Assignment, int)) {
	for i := range n {
		a := plan([]string{"free", "pro", "gold"}[i%3], subject("api", fmt.Sprintf("tenant=acme-%06d", i)))
		a.Base.Reason, a.Base.By = fmt.Sprint("ticket ", i%1000), "ann@example.com"
		a.Stamp(fmt.Sprintf("%d-0", 1780000000000+i), 1780000000000000+int64(i))
		change(a, i)
		table.Put(a)
	}
}
