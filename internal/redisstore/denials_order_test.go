package redisstore

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// A give-back while the reply with a denial is on its way ends the denial before it is
// known.
func TestReturnOvertakesADenial(t *testing.T) {
	d := newDenials(time.Second, DefaultDenialBytes, maphash.MakeSeed(), func(now time.Time) time.Time { return now })
	l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1, Period: time.Hour})
	hits := []bucket.Hit{{Limit: l, Key: []byte("a"), Cost: 1}}
	denied := []bucket.Decision{{RetryAfter: time.Hour, ResetAfter: time.Hour}}
	for _, isReturned := range []bool{true, false} {
		t.Run(fmt.Sprint("returned ", isReturned), func(t *testing.T) {
			asked, known := d.known(time.Now(), askedOf(d, hits, make([]bucket.Decision, 1)))
			if known {
				t.Fatal("a denial is known that nobody learned")
			}
			if isReturned {
				d.changed(hashesOf(d.seed, hits))
			}
			d.learn(asked, askedOf(d, hits, denied), false)
			if _, known := d.known(time.Now(), askedOf(d, hits, make([]bucket.Decision, 1))); known == isReturned {
				t.Errorf("returned on its way: %v; the denial is known: %v", isReturned, known)
			}
		})
	}
}

// A request from before a denial was known asks Redis, and later ones get the denial.
func TestEarlierRequestKeepsADenial(t *testing.T) {
	d := newDenials(time.Second, DefaultDenialBytes, maphash.MakeSeed(), func(now time.Time) time.Time { return now })
	l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1, Period: time.Hour})
	hits := []bucket.Hit{{Limit: l, Key: []byte("a"), Cost: 1}}
	before := time.Now().Add(-time.Millisecond)
	asked, _ := d.known(before, askedOf(d, hits, make([]bucket.Decision, 1)))
	d.learn(asked, askedOf(d, hits, []bucket.Decision{{RetryAfter: time.Hour, ResetAfter: time.Hour}}), false)
	if _, known := d.known(before, askedOf(d, hits, make([]bucket.Decision, 1))); known {
		t.Error("a denial is known before it came")
	}
	if _, known := d.known(time.Now(), askedOf(d, hits, make([]bucket.Decision, 1))); !known {
		t.Error("the denial was forgotten")
	}
}

// A denial of a state that was deleted while the reply was on its way is not remembered.
func TestForgetOvertakesADenial(t *testing.T) {
	d := newDenials(time.Second, DefaultDenialBytes, maphash.MakeSeed(), func(now time.Time) time.Time { return now })
	l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1, Period: time.Hour})
	hits := []bucket.Hit{{Limit: l, Key: []byte("a"), Cost: 1}, {Limit: l, Key: []byte("b"), Cost: 1}}
	denied := []bucket.Decision{{RetryAfter: time.Hour, ResetAfter: time.Hour}, {}}
	for forgotten, isKnown := range map[string]bool{"a": false, "b": false, "c": true} {
		asked, known := d.known(time.Now(), askedOf(d, hits, make([]bucket.Decision, 2)))
		if known {
			t.Fatal("a denial is known that nobody learned")
		}
		d.forget([]string{forgotten})
		d.learn(asked, askedOf(d, hits, denied), false)
		if _, known := d.known(time.Now(), askedOf(d, hits, make([]bucket.Decision, 2))); known != isKnown {
			t.Errorf("%s was forgotten on its way; the denial is known: %v", forgotten, known)
		}
		d.forget([]string{"a"})
	}
}

// While nothing is denied changes are not counted. So what was asked or remembered before
// such a time is not told after it, and the first denial after it is asked about again.
func TestQuietTimeEndsDenials(t *testing.T) {
	d := newDenials(time.Hour, DefaultDenialBytes, maphash.MakeSeed(), func(now time.Time) time.Time { return now })
	l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1, Period: time.Hour})
	hitsOf := func(key string) []bucket.Hit { return []bucket.Hit{{Limit: l, Key: []byte(key), Cost: 1}} }
	ask := func(key string) (question, bool) {
		return d.known(time.Now(), askedOf(d, hitsOf(key), make([]bucket.Decision, 1)))
	}
	learnDenied := func(key string, asked question) {
		d.learn(asked, askedOf(d, hitsOf(key), []bucket.Decision{{RetryAfter: time.Hour, ResetAfter: time.Hour}}), false)
	}
	takes := map[string]func(key string){
		"taken":     func(key string) { d.learn(question{}, askedOf(d, hitsOf(key), make([]bucket.Decision, 1)), false) },
		"returned":  func(key string) { d.changed(hashesOf(d.seed, hitsOf(key))) },
		"forgotten": func(key string) { d.forget([]string{key}) },
		"left":      func(string) {},
	}
	now := time.Now()
	for name, change := range takes {
		t.Run(name, func(t *testing.T) {
			asked, _ := ask(name)
			learnDenied(name, asked)
			d.forgetEnded(now) // has seen the denial
			now = now.Add(quietFor - time.Nanosecond)
			d.forgetEnded(now)
			if _, known := ask(name); !known {
				t.Fatal("the denial was forgotten too soon")
			}
			inFlight, _ := ask("in flight" + name)
			now = now.Add(time.Nanosecond)
			d.forgetEnded(now)
			change(name)
			change("in flight" + name)
			first, known := ask(name)
			if known {
				t.Error("the denial is known while changes are not counted")
			}
			learnDenied(name, first)
			learnDenied("in flight"+name, inFlight)
			for _, key := range []string{name, "in flight" + name} {
				again, known := ask(key)
				if known {
					t.Errorf("a denial of %q is known that was asked about before changes were counted", key)
				}
				learnDenied(key, again)
				if _, known := ask(key); !known {
					t.Errorf("the second denial of %q is not known", key)
				}
			}
		})
	}
}

// A change counts by the spell in which it ended, and in each later spell.
func TestChangesCountInEachSpell(t *testing.T) {
	d := newDenials(time.Hour, DefaultDenialBytes, maphash.MakeSeed(), func(now time.Time) time.Time { return now })
	l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1, Period: time.Hour})
	group := func(key string, retry time.Duration) *script.Group {
		return askedOf(d, []bucket.Hit{{Limit: l, Key: []byte(key), Cost: 1}}, []bucket.Decision{{RetryAfter: retry, ResetAfter: retry}})
	}
	ask := func(key string) (question, bool) { return d.known(time.Now(), group(key, 0)) }
	learn := func(key string, q question, retry time.Duration) { d.learn(q, group(key, retry), false) }
	now := time.Now()
	pass := func() {
		for range 2 { // the first sees the last denial
			now = now.Add(quietFor)
			d.forgetEnded(now)
		}
	}

	pass()
	taking, _ := ask("a") // while changes are not counted
	begins, _ := ask("other")
	learn("other", begins, time.Hour)
	denying, _ := ask("a")
	learn("a", denying, time.Hour)
	if _, known := ask("a"); !known {
		t.Error("a denial is not known")
	}
	learn("a", taking, 0)
	if _, known := ask("a"); known {
		t.Error("a denial is known after a take that began before changes were counted")
	}

	denying, _ = ask("a")
	learn("a", denying, time.Hour)
	pass()
	begins, _ = ask("other")
	learn("other", begins, time.Hour)
	if _, known := ask("a"); known {
		t.Error("a denial of an earlier spell is known")
	}
	for name, change := range map[string]func(){
		"a take":       func() { learn("a", taking, 0) },
		"a give-back":  func() { d.changed(group("a", 0).Hashes) },
		"a lost state": func() { d.forget([]string{"a"}) },
	} {
		denying, _ = ask("a")
		learn("a", denying, time.Hour)
		if _, known := ask("a"); !known {
			t.Errorf("before %s a denial is not known", name)
		}
		change()
		if _, known := ask("a"); known {
			t.Errorf("after %s in a later spell a denial is known", name)
		}
	}
}

// While changes go on, and spells begin and end, no denial is told that is older than a
// change that had ended when it was asked.
func TestDenialsAreNotOlderThanChanges(t *testing.T) {
	d := newDenials(time.Hour, DefaultDenialBytes, maphash.MakeSeed(), func(now time.Time) time.Time { return now })
	l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1, Period: time.Hour})
	const callers, rounds = 8, 5000
	type key struct {
		name           string
		changed, ended atomic.Int64 // the changes that were made, and of which all had ended
		ending         sync.Mutex
	}
	keys := [3]*key{{name: "a"}, {name: "b"}, {name: "c"}}
	group := func(k *key, of bucket.Decision) *script.Group {
		return askedOf(d, []bucket.Hit{{Limit: l, Key: []byte(k.name), Cost: 1}}, []bucket.Decision{of})
	}
	var all sync.WaitGroup
	var told atomic.Int64
	for n := range callers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(n)))
			for range rounds {
				k := keys[random.IntN(len(keys))]
				floor, g := k.ended.Load(), group(k, bucket.Decision{})
				q, known := d.known(time.Now(), g)
				switch {
				case known:
					told.Add(1)
					if at := g.Decisions[0].Remaining; at < floor {
						t.Errorf("a denial after %d changes is told, of %d", at, floor)
					}
				case random.IntN(4) > 0:
					d.learn(q, group(k, bucket.Decision{Remaining: k.changed.Load(), RetryAfter: time.Hour, ResetAfter: time.Hour}), false)
				default:
					k.ending.Lock()
					made := k.changed.Add(1)
					if random.IntN(2) == 0 {
						d.learn(q, group(k, bucket.Decision{}), false)
					} else {
						d.changed(g.Hashes)
					}
					k.ended.Store(made)
					k.ending.Unlock()
				}
				if random.IntN(20) == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for now := time.Now(); ; now = now.Add(quietFor) {
			select {
			case <-stop:
				return
			default:
				d.forgetEnded(now)
				runtime.Gosched()
			}
		}
	}()
	all.Wait()
	close(stop)
	<-stopped
	if spells := d.spell.Load(); told.Load() == 0 || spells < 10 {
		t.Errorf("%d denials were told in %d spells, too few to show anything", told.Load(), spells)
	}
}

// askedOf returns a request as denials get it.
func askedOf(d *denials, hits []bucket.Hit, decisions []bucket.Decision) *script.Group {
	return &script.Group{Hits: hits, Hashes: hashesOf(d.seed, hits), Decisions: decisions}
}
