package memstore_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
)

func TestResetsAdmitNoMoreThanTheLimitEach(t *testing.T) {
	s := memstore.New(memstore.Options{MaxKeys: 1e6})
	defer s.Close()
	buckettest.RunResets(t, []bucket.Store{s}, func(_ *testing.T, keys []string) { s.Forget(keys) })
}

func TestForgetCountsKeysOff(t *testing.T) {
	s := memstore.New(memstore.Options{MaxKeys: 10})
	defer s.Close()
	l := newLimit(t, bucket.Spec{Algorithm: bucket.SlidingLog, Requests: 5, Period: time.Hour})
	var keys []string
	for _, user := range []string{"a", "b", "c"} {
		h := hit(l, user, 1)
		take(t, s, h)
		keys = append(keys, s.Locate(&h).Key)
	}
	s.Forget([]string{keys[0], "unknown", keys[1], keys[0]})
	if n := s.Stats(); n.Keys != 1 || n.Bytes != bytesOf(t, hit(l, "c", 1)) {
		t.Errorf("after two of three keys were forgotten, %+v", n)
	}
	if n := take(t, s, hit(l, "c", 0))[0].Remaining; n != 4 {
		t.Errorf("%d of 5 remain of the key that was not forgotten", n)
	}
}
