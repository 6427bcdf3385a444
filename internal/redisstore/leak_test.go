package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// After Close no goroutine and no connection is left, whatever the store was doing.
// These tests are not parallel, since goroutines of others would look like theirs.
func TestNothingOutlivesClose(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	theProxy := goleak.IgnoreAnyFunction("github.com/ratelimitd/ratelimitd/internal/redistest.(*Proxy).accept")
	l := daily(t, 1000)
	for name, trouble := range map[string]func(s *redisstore.Store, h func() <-chan error){
		"unused": func(*redisstore.Store, func() <-chan error) {},
		"used": func(s *redisstore.Store, begin func() <-chan error) {
			if err := <-begin(); err != nil {
				t.Error(err)
			}
		},
		"callers wait": func(_ *redisstore.Store, begin func() <-chan error) {
			proxy.Hold("evalsha")
			ended := begin()
			asynctest.Eventually(t, "the reply is held", func() bool {
				select {
				case <-ended: // it was not sent in time
					ended = begin()
				default:
				}
				return proxy.Held() == 1
			})
			for range 10 {
				begin()
			}
		},
		"the breaker is open": func(_ *redisstore.Store, begin func() <-chan error) {
			proxy.Drop()
			for range 5 {
				if err := <-begin(); err == nil {
					t.Error("without packets somebody was answered")
				}
			}
		},
		"connections are refused": func(_ *redisstore.Store, begin func() <-chan error) {
			proxy.Refuse()
			for range 5 {
				<-begin()
			}
		},
		"replies were cut off": func(_ *redisstore.Store, begin func() <-chan error) {
			for range 5 {
				done := proxy.CutAfter("evalsha")
				<-begin()
				<-done
			}
		},
	} {
		for _, batch := range []redisstore.BatchBounds{{Size: 1000, InFlight: 2, Queue: 100}, {}} {
			t.Run(fmt.Sprintf("%s, batches of %d", name, batch.Size), func(t *testing.T) {
				before := goleak.IgnoreCurrent()
				o := options(redisconn.Single, proxy.Addr())
				o.Timeout, o.Batch = 100*time.Millisecond, batch
				s, end, err := newStore(o)
				if err != nil {
					t.Fatal(err)
				}
				callers := 0
				done := make(chan error, 100)
				trouble(s, func() <-chan error {
					one := make(chan error, 1)
					callers++
					go func() {
						err := s.Take(context.Background(), []bucket.Hit{hit(l, name, 1)}, make([]bucket.Decision, 1))
						one <- err
						done <- err
					}()
					return one
				})
				if err := end(); err != nil {
					t.Error(err)
				}
				for range callers {
					<-done // with the decision or an error
				}
				proxy.Heal(t)
				asynctest.Eventually(t, "no connection is left", func() bool { return proxy.Connections() == 0 })
				left := error(nil)
				t.Cleanup(func() {
					if left != nil {
						t.Log(left)
					}
				})
				asynctest.Eventually(t, "no goroutine is left", func() bool { // a dial may have to end
					left = goleak.Find(before, theProxy)
					return left == nil
				})
			})
		}
	}
}
