package authapi_test

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// keys is a store that allows everything and notes the keys that it is asked
// for.
type keys struct {
	servertest.FakeStore
	mu    sync.Mutex
	asked []string
}

func newKeys() *keys {
	k := new(keys)
	k.OnTake = func(_ context.Context, hits []bucket.Hit, _ []bucket.Decision) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, h := range hits {
			subject, _, _ := strings.Cut(string(h.Key), "#")
			if h.Cost != 1 {
				subject += fmt.Sprintf(" cost %d", h.Cost)
			}
			k.asked = append(k.asked, strings.TrimPrefix(subject, "d|"))
		}
		return nil
	}
	return k
}

// last returns the keys that the store was asked for since the last call.
func (k *keys) last() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	asked := strings.Join(k.asked, " ")
	k.asked = nil
	return asked
}
