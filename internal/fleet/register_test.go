package fleet_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// What is no registration is passed over, and removed at the next sign-in.
func TestForeignLinesArePassedOver(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	o := newOptions(redisconn.Single, addr)
	key := o.Prefix + "{~fleet}"
	now := time.Now().UnixMilli()
	good := fmt.Sprintf(`%d %d abc 32 1 ,1, {"id":"abc","address":"other","hash_tags":32,"state_format":1,"reads":[1],"new":[[{}]]}`, now, now)
	foreign := strings.Join([]string{"", "x", `{"id":"y"}`, good, strings.ReplaceAll(good, fmt.Sprint(now), "5"), "\xff\x00"}, "\n")
	if err := c.Set(ctx, key, foreign, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	s := open(t, o)
	if got := addresses(daemons(t, s)); got != "other" {
		t.Errorf("the daemons are %q", got)
	}
	signIn(t, newFleet(t, o, "web-1"))
	if got := addresses(daemons(t, s)); got != "other web-1" {
		t.Errorf("after a sign-in the daemons are %q", got)
	}
	if n := strings.Count(c.Get(ctx, key).Val(), "\n"); n != 1 {
		t.Errorf("%d lines are left", n+1)
	}
	// What is of another type is replaced.
	c.Del(ctx, key)
	c.RPush(ctx, key, "x")
	signIn(t, newFleet(t, o, "web-1"))
	if got := addresses(daemons(t, s)); got != "web-1" {
		t.Errorf("after a list the daemons are %q", got)
	}
}

// Whatever a daemon is called, the register stays readable.
func TestStrangeTextsAreKept(t *testing.T) {
	t.Parallel()
	o := newOptions(redisconn.Single, redistest.Single(t))
	s := open(t, o)
	strange := "a \x00\n\x1b[1m\"\\/" + strings.Repeat("ä", 200)
	signIn(t, s.join(fleet.Options{Address: strange, Version: strange, Rules: func() string { return strange }}))
	if m := daemons(t, s); len(m) != 1 || m[0].Address != strange || m[0].Rules != strange {
		t.Errorf("daemons %+v", m)
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
		if len(keys) != want {
			t.Fatalf("%s: keys %v, want %d", step, keys, want)
		}
		for key, end := range keys {
			if end.IsZero() || end.After(redistest.Now(t, c).Add(7*time.Second)) {
				t.Errorf("%s: %s expires at %s", step, key, end)
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
