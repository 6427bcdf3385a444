package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// acrossRig is a store on a cluster, with a fallback. A test can run code before each
// of its commands: a request over several hash tags checks, takes and refunds by
// commands of their own, one for each tag. A second store has the same keys. Time
// stands still for both.
type acrossRig struct {
	t       testing.TB
	metrics *prometheus.Registry
	store   *redisstore.Store
	direct  *redisstore.Store
	redis   *redis.ClusterClient
	users   []string // each on a hash tag of its own
	keys    map[string]string

	mu     sync.Mutex
	calls  int // of the script, by store, except those sent again to load it
	before map[int]func()
}

// newAcrossRig returns a rig whose fallback has this mode.
func newAcrossRig(t testing.TB, mode bucket.FailureMode, change ...func(*testOptions)) *acrossRig {
	t.Helper()
	r := &acrossRig{t: t, metrics: prometheus.NewRegistry(), keys: make(map[string]string)}
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC).UnixMicro()
	o := options(redisconn.Cluster, redistest.Cluster(t)...)
	o.Clock = func() int64 { return now }
	r.direct = open(t, o)
	r.redis = redis.NewClusterClient(&redis.ClusterOptions{Addrs: o.Addresses, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { r.redis.Close() })
	o.Hook = beforeScripts{r.beforeCall}
	o.Metrics = r.metrics
	o.Fallback = fallback.New(fallback.Options{
		Mode:     mode,
		Local:    memstore.New(memstore.Options{MaxKeys: 1e6}),
		Replicas: func() int { return 1 },
		Metrics:  r.metrics,
	})
	t.Cleanup(func() { o.Fallback.Close() })
	for _, f := range change {
		f(&o)
	}
	r.store = open(t, o)
	r.findUsers(o)
	return r
}

// findUsers finds four users of different hash tags.
func (r *acrossRig) findUsers(o testOptions) {
	r.t.Helper()
	l := newLimit(r.t, bucket.Spec{Name: "finding", Algorithm: bucket.FixedWindow, Requests: 1, Period: 24 * time.Hour})
	var seen []string
	for i := 0; len(r.users) < 4; i++ {
		user := fmt.Sprint("user-", i)
		take(r.t, r.direct, hit(l, user, 1))
		key := r.find(o, user)
		tag := key[strings.Index(key, "{"):strings.Index(key, "}")]
		if !slices.Contains(seen, tag) {
			seen = append(seen, tag)
			r.users = append(r.users, user)
		}
	}
}

// find returns the one key of a user.
func (r *acrossRig) find(o testOptions, user string) string {
	r.t.Helper()
	var found string
	for _, addr := range o.Addresses {
		for key := range redistest.Keys(r.t, redistest.Client(r.t, addr), o.Prefix) {
			if strings.Contains(key, "|user="+user+"#") {
				found = key
			}
		}
	}
	if found == "" {
		r.t.Fatalf("there is no key of %s", user)
	}
	// The keys of all limits of a user differ in what comes after this.
	r.keys[user] = found[:strings.Index(found, "#")+1]
	return found
}

// beforeScripts calls a function before each command that runs a script by its hash.
type beforeScripts struct{ do func() }

func (beforeScripts) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b beforeScripts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		b.before(cmd)
		return next(ctx, cmd)
	}
}

func (b beforeScripts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		b.before(cmds...)
		return next(ctx, cmds)
	}
}

func (b beforeScripts) before(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if cmd.Name() == "evalsha" {
			b.do()
		}
	}
}

func (r *acrossRig) beforeCall() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if f := r.before[r.calls]; f != nil {
		f()
	}
}

// comeBefore calls f before the n-th command from now on, and before those that are
// sent at the same time.
func (r *acrossRig) comeBefore(n int, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls, r.before = 0, map[int]func(){n: f}
}

// spoil makes the state of a hit unreadable, so that Redis decides no group
// with it, and mend removes it.
func (r *acrossRig) spoil(h bucket.Hit) {
	if err := r.redis.Set(context.Background(), r.key(h), "spoilt", time.Minute).Err(); err != nil {
		r.t.Error(err)
	}
}

func (r *acrossRig) mend(h bucket.Hit) {
	if err := r.redis.Del(context.Background(), r.key(h)).Err(); err != nil {
		r.t.Error(err)
	}
}

func (r *acrossRig) key(h bucket.Hit) string {
	text := string(h.Key)
	for user, head := range r.keys {
		if before, limit, _ := strings.Cut(text, "#"); strings.HasSuffix(before, "|user="+user) {
			return head + limit
		}
	}
	r.t.Fatalf("%q is the key of no user of the rig", text)
	return ""
}

// left returns what remains of a hit's limit in Redis.
func (r *acrossRig) left(h bucket.Hit) int64 {
	r.t.Helper()
	h.Cost = 0
	return take(r.t, r.direct, h)[0].Remaining
}

func (r *acrossRig) take(hits ...bucket.Hit) outcome {
	d := make([]bucket.Decision, len(hits))
	err := r.store.Take(context.Background(), hits, d)
	return outcome{d, err}
}

func (r *acrossRig) counted(labels ...string) float64 {
	r.t.Helper()
	return metric(r.t, r.metrics, "degraded_answers_total", labels...)
}
