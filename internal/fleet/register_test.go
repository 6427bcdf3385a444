package fleet_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// A value that is no register reads as an empty one and is overwritten; what
// is no registration in it is skipped.
func TestForeignValueReadsAsAnEmptyRegister(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	o := newOptions(redisconn.Single, addr)
	key := o.Prefix + "{~fleet}"
	s := open(t, o)
	f := newFleet(t, o, "web-1")
	registration := func(change func(string) string) string {
		now := time.Now().UnixMilli()
		return change(fmt.Sprintf(`{"id":"x","address":"other","version":"v","hash_tags":32,"state_format":1,"reads":[1],"rules":"","started":%d,"seen":%d}`, now, now))
	}
	replace := func(old, new string) string {
		return registration(func(e string) string {
			if !strings.Contains(e, old) {
				t.Fatalf("%s lacks %s", e, old)
			}
			return strings.Replace(e, old, new, 1)
		})
	}
	for _, value := range []string{
		"", "x", "null", "1", `"a"`, "{}", "[]", "[", "[[]]", "[null]", "[1,2]", `[{}]`, "\xff\x00", `{"a":{"id":"x"}}`,
		strings.Repeat("[", 5000), strings.Repeat("[", 900) + strings.Repeat("]", 900),
		"[" + replace(`"x"`, `5`) + "]",
		"[" + replace(`"other"`, `"a\u001b[31m"`) + "]",
		"[" + replace(`"other"`, `"`+strings.Repeat("a", 256)+`"`) + "]",
		"[" + replace(`[1]`, `[]`) + "]",
		"[" + replace(`[1]`, `{}`) + "]",
		"[" + replace(`[1]`, `["1"]`) + "]",
		"[" + replace(`:32`, `:NaN`) + "]",
		"[" + replace(`:32`, `:1e999`) + "]",
		"[" + replace(`:32`, `:32.5`) + "]",
		"[" + replace(`:32`, `:-1`) + "]",
		"[" + replace(`,"seen"`, `,"sin"`) + "]",
		"[" + replace(`"seen":`, `"seen":1e14,"x":`) + "]",
		"[" + replace(`"seen":`, `"seen":0,"x":`) + "]",
	} {
		t.Run(fmt.Sprintf("%.40q", value), func(t *testing.T) {
			if err := c.Set(ctx, key, value, time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
			if m := daemons(t, s); len(m) != 0 {
				t.Errorf("%.80q reads as %+v", value, m)
			}
			signIn(t, f)
			if got := addresses(daemons(t, s)); got != "web-1" {
				t.Errorf("after %.80q the daemons are %q", value, got)
			}
			if ttl := c.PTTL(ctx, key).Val(); ttl <= 0 || ttl > 7*time.Second {
				t.Errorf("after %.80q the register lives for %s", value, ttl)
			}
		})
	}
	for _, write := range []*redis.IntCmd{c.RPush(ctx, key+"2", "x"), c.HSet(ctx, key+"2h", "x", "y")} {
		if err := write.Err(); err != nil {
			t.Fatal(err)
		}
		if err := c.Rename(ctx, write.Args()[1].(string), key).Err(); err != nil {
			t.Fatal(err)
		}
		signIn(t, f)
		if got := addresses(daemons(t, s)); got != "web-1" {
			t.Errorf("after a value of another type the daemons are %q", got)
		}
	}
	// Good registrations among bad ones, with a field of a later version, count.
	value := "[1," + registration(func(e string) string { return strings.Replace(e, "{", `{"new":[[{}]],`, 1) }) + ",{}]"
	if err := c.Set(ctx, key, value, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	signIn(t, f)
	if got := addresses(daemons(t, s)); got != "other web-1" {
		t.Errorf("beside a good registration the daemons are %q", got)
	}
}

// Whatever a daemon is called, the register stays readable.
func TestStrangeTextsAreMadeHarmless(t *testing.T) {
	t.Parallel()
	o := newOptions(redisconn.Single, redistest.Single(t))
	s := open(t, o)
	strange := "a\x00\x1b[1m\"\\/\xff" + strings.Repeat("ä", 200)
	signIn(t, s.join(fleet.Options{Address: strange, Version: strange, Rules: func() string { return strange }}))
	m := daemons(t, s)
	if len(m) != 1 || !strings.HasPrefix(m[0].Address, `a??[1m"\/`) || len(m[0].Rules) > 255 || len(m[0].Rules) < 200 {
		t.Errorf("daemons %+v", m)
	}
}

func TestRegisterIsBounded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	o := newOptions(redisconn.Single, addr)
	clock := asynctest.NewClock()
	o.Clock = clock.Micros
	var b strings.Builder
	for i := range 10_001 {
		fmt.Fprintf(&b, `,{"id":"%d","address":"a","version":"","hash_tags":32,"state_format":1,"reads":[1],"rules":"","started":0,"seen":%d}`, i, clock.Micros()/1000)
	}
	if err := c.Set(ctx, o.Prefix+"{~fleet}", "["+b.String()[1:]+"]", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, o, "web-1")
	if err := f.SignIn(ctx); err == nil || !strings.Contains(err.Error(), "full") || f.Conflict() != nil {
		t.Errorf("a full register gives %v, conflict %v", err, f.Conflict())
	}
	if n := f.Size(); n != 10_001 {
		t.Errorf("%d daemons are seen", n)
	}
	if n := len(daemons(t, open(t, o))); n != 10_000 {
		t.Errorf("%d daemons", n)
	}
}

// The register lives as long as its newest registration, and is the only key.
func TestRegisterExpires(t *testing.T) {
	t.Parallel()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	o := newOptions(redisconn.Single, addr)
	check := func(step string, want int) {
		t.Helper()
		keys := redistest.Keys(t, c, o.Prefix)
		for key, ttl := range keys {
			if strings.HasSuffix(key, "~roll") {
				if ttl <= 0 || ttl > time.Minute {
					t.Errorf("%s: %s lives for %s", step, key, ttl)
				}
				delete(keys, key)
			}
		}
		if len(keys) != want {
			t.Fatalf("%s: keys %v, want %d", step, keys, want)
		}
		for key, ttl := range keys {
			if ttl <= 0 || ttl > 7*time.Second {
				t.Errorf("%s: %s lives for %s", step, key, ttl)
			}
		}
	}
	one, two := newFleet(t, o, "web-1"), newFleet(t, o, "web-2")
	signIn(t, one)
	check("the first sign-in", 1)
	signIn(t, two)
	signIn(t, one)
	check("a renewal", 1)
	daemons(t, open(t, o))
	check("a look", 1)
	other := o
	other.HashTags = 2
	if newFleet(t, other, "web-3").SignIn(context.Background()) == nil {
		t.Error("no conflict")
	}
	check("a conflict", 1)
	run(two)()
	check("a sign-out", 1)
	run(one)()
	check("the last sign-out", 0)
}
