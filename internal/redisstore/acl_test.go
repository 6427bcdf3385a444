package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// The commands that a store's user needs, beside HELLO and AUTH, which every user may
// run.
var (
	aclSingle   = strings.Fields("+evalsha +eval +script|load +time +mget +set +del +info")
	aclDatabase = append(slices.Clone(aclSingle), "+select")
	aclCluster  = append(slices.Clone(aclSingle), "+cluster|slots", "+cluster|info", "+asking")
	aclHolders  = strings.Fields("+zadd +zrem +zcard +zcount +zscore +zrange +zrevrange +zrangebyscore +zremrangebyscore +zremrangebyrank +pexpire")
)

const (
	aclName     = "ratelimitd"
	aclPassword = "s3cret"
)

// aclRules are the arguments of ACL SETUSER.
func aclRules(password string, commands []string) []string {
	return append([]string{aclName, "reset", "on", ">" + password, "~rl{*"}, commands...)
}

// docs/redis.md has the rights of the smallest user.
func TestSmallestUserIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, commands := range [][]string{aclSingle, aclCluster} {
		line := "ACL SETUSER " + strings.Join(aclRules("PASSWORD", commands), " ") + "\n"
		if !strings.Contains(string(text), line) {
			t.Errorf("docs/redis.md lacks the line %s", line)
		}
	}
}

func TestRightsForHoldersAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	if line := "ACL SETUSER " + aclName + " " + strings.Join(aclHolders, " ") + "\n"; !strings.Contains(string(text), line) {
		t.Errorf("docs/redis.md lacks the line %s", line)
	}
}

// A user with all rights for holders may do all that is done with them, and the check at
// the start of a daemon finds each right that is missing.
func TestRightsForHolders(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	addrs := []string{server.Addr()}
	commands := slices.Concat(aclSingle, aclHolders)
	use := func() error {
		clock := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		o := aclOptions(redisconn.Single, server.Addr())
		o.Clock = func() int64 { return clock.UnixMicro() }
		s := open(t, o)
		ctx := context.Background()
		l := concurrency(t, 20, time.Minute)
		one := make([]bucket.Decision, 1)
		var errs []error
		do := func(holder string, cost int64) {
			errs = append(errs, s.Take(ctx, []bucket.Hit{by(l, "a", holder, cost)}, one))
		}
		for i := range 21 {
			do(fmt.Sprint(i), 1) // the last is denied
		}
		do("0", -1)
		clock = clock.Add(3 * time.Minute)
		do("1", 1) // which removes those that lapsed
		clock = clock.Add(time.Hour)
		do("1", 1)
		clock = clock.Add(-time.Hour + 30*time.Second)
		do("2", 1) // which mends
		_, err := s.Holders(ctx, &bucket.Hit{Limit: l, Key: by(l, "a", "1", 1).Key, Place: by(l, "a", "1", 1).Place}, 5)
		return errors.Join(append(errs, err, s.HolderRights(ctx))...)
	}
	setUser(t, addrs, commands)
	if err := use(); err != nil {
		t.Errorf("%v are not enough: %v", commands, err)
	}
	for i, command := range aclHolders {
		t.Run("without "+command, func(t *testing.T) {
			setUser(t, addrs, slices.Concat(aclSingle, slices.Delete(slices.Clone(aclHolders), i, i+1)))
			s := open(t, aclOptions(redisconn.Single, server.Addr()))
			if err := s.HolderRights(context.Background()); err == nil || !strings.Contains(err.Error(), "NOPERM") {
				t.Errorf("the check says %v", err)
			}
		})
	}
	t.Run("without all", func(t *testing.T) {
		setUser(t, addrs, aclSingle)
		s := open(t, aclOptions(redisconn.Single, server.Addr()))
		held, rate := by(concurrency(t, 20, time.Minute), "b", "1", 1), hit(daily(t, 9), "b", 1)
		if err := s.Take(context.Background(), []bucket.Hit{held}, make([]bucket.Decision, 1)); err == nil {
			t.Error("a slot was taken")
		}
		take(t, s, rate) // which is as it was
	})
}

func TestSmallestUserSufficesOnAServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	testSmallestUser(t, aclSingle, []string{server.Addr()}, serverUser(server.Addr(), 0))
}

func TestSmallestUserSufficesInADatabase(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	testSmallestUser(t, aclDatabase, []string{server.Addr()}, serverUser(server.Addr(), 3))
}

func serverUser(addr string, database int) func(*testing.T) error {
	return func(t *testing.T) error {
		o := aclOptions(redisconn.Single, addr)
		o.Database = database
		return useEverything(t, o, []string{addr}, func() error { return nil })
	}
}

func TestSmallestUserSufficesOnACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 0)
	testSmallestUser(t, aclCluster, cluster.Addrs(), func(t *testing.T) error {
		o := aclOptions(redisconn.Cluster, cluster.Addrs()...)
		return useEverything(t, o, cluster.Addrs(), func() error {
			return takeFromAMovingSlot(t, o, cluster.Addrs())
		})
	})
}

// testSmallestUser calls use with a user that may run the commands, which must
// work, and then with one of them missing each time, which must not.
func testSmallestUser(t *testing.T, commands, addrs []string, use func(*testing.T) error) {
	t.Run("all", func(t *testing.T) {
		setUser(t, addrs, commands)
		if err := use(t); err != nil {
			t.Errorf("%v are not enough: %v", commands, err)
		}
	})
	for i, command := range commands {
		t.Run("without "+strings.TrimPrefix(command, "+"), func(t *testing.T) {
			setUser(t, addrs, slices.Delete(slices.Clone(commands), i, i+1))
			err := use(t)
			if err == nil {
				t.Errorf("%s is not needed", command)
			}
			t.Log(err)
		})
	}
	t.Run("other keys", func(t *testing.T) {
		setUser(t, addrs, slices.Concat(commands, []string{"resetkeys", "~other{*"}))
		if err := use(t); err == nil || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("error %v where the user may touch other keys only, want NOPERM", err)
		}
	})
}

func setUser(t *testing.T, addrs, commands []string) {
	t.Helper()
	args := []any{"acl", "setuser"}
	for _, rule := range aclRules(aclPassword, commands) {
		args = append(args, rule)
	}
	for _, addr := range addrs {
		if err := redistest.Client(t, addr).Do(context.Background(), args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
}

func aclOptions(mode redisconn.Mode, addrs ...string) testOptions {
	o := options(mode, addrs...)
	o.Prefix = "rl" // as in the user's rules
	o.Username = aclName
	o.Password = func() (string, error) { return aclPassword, nil }
	return o
}

// useEverything does what a daemon does in its life, as this user, and returns
// an error if any of it went worse than as the default user.
func useEverything(t *testing.T, o testOptions, addrs []string, further func() error) error {
	ctx := context.Background()
	admins := make([]*redis.Client, len(addrs))
	flush := func() {
		for i, addr := range addrs {
			admins[i] = redistest.Client(t, addr)
			if err := errors.Join(admins[i].ScriptFlush(ctx).Err(), admins[i].ConfigResetStat(ctx).Err()); err != nil {
				t.Fatal(err)
			}
		}
	}
	flush()
	s := open(t, o)
	if err := s.Ping(ctx); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	l := newLimit(t, bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 10, Period: time.Hour})
	hits := []bucket.Hit{hit(l, "a", 1), hit(l, "b", 1), hit(l, "c", 1)}
	decisions := make([]bucket.Decision, len(hits))
	if err := s.Take(ctx, hits, decisions); err != nil {
		return fmt.Errorf("take: %w", err)
	}
	// It leaves nothing to remember, so the keys are deleted.
	if err := s.GiveBack(ctx, hits, decisions); err != nil {
		return fmt.Errorf("give back: %w", err)
	}
	if w := s.Warnings(ctx); len(w) > 0 {
		return fmt.Errorf("warnings: %v", w)
	}
	// The script was loaded with each connection, never sent with a call.
	for _, c := range admins {
		stats, err := c.Info(ctx, "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(stats, "cmdstat_eval:") {
			return fmt.Errorf("%s got the script with a call", c.Options().Addr)
		}
	}
	flush()
	if err := s.Take(ctx, hits, decisions); err != nil {
		return fmt.Errorf("take after SCRIPT FLUSH: %w", err)
	}
	if err := s.GiveBack(ctx, hits, decisions); err != nil {
		return fmt.Errorf("give back after SCRIPT FLUSH: %w", err)
	}
	return errors.Join(signInAndOut(ctx, o.connOptions), further())
}

// signInAndOut does what a daemon does with the register.
func signInAndOut(ctx context.Context, o connOptions) error {
	conn, err := redisconn.New(o)
	if err != nil {
		return err
	}
	defer conn.Close()
	register := fleet.Register{Redis: conn}
	m := fleet.New(register, fleet.Options{Address: "web-1", HashTags: 32, StateFormat: 1, Reads: []int{1}})
	if err := m.SignIn(ctx); err != nil {
		return fmt.Errorf("sign in to the register: %w", err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	m.Run(ended) // which signs out
	if d, _, err := register.Daemons(ctx); err != nil || len(d) > 0 {
		return fmt.Errorf("after signing out of the register: %v, %w", d, err)
	}
	return nil
}

// takeFromAMovingSlot takes from a limit whose slot is moving from one node to
// another, so that the client is redirected by ASK.
func takeFromAMovingSlot(t *testing.T, o testOptions, addrs []string) error {
	ctx := context.Background()
	do := func(c *redis.Client, args ...any) {
		t.Helper()
		if err := c.Do(ctx, args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	for _, addr := range addrs {
		do(redistest.Client(t, addr), "flushall") // what users who may not delete have left
	}
	s := open(t, o)
	l := newLimit(t, bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 10, Period: time.Hour})
	moving := hit(l, "moving", 1)
	take(t, s, moving)
	var source, target *redis.Client
	var key string
	for _, addr := range addrs {
		c := redistest.Client(t, addr)
		keys := redistest.Keys(t, c, o.Prefix)
		if len(keys) == 0 {
			target = c
			continue
		}
		source = c
		for key = range keys {
		}
	}
	slot := source.ClusterKeySlot(ctx, key).Val()
	do(target, "cluster", "setslot", slot, "importing", source.ClusterMyID(ctx).Val())
	do(source, "cluster", "setslot", slot, "migrating", target.ClusterMyID(ctx).Val())
	do(source, "del", key)
	err := s.Take(ctx, []bucket.Hit{moving}, make([]bucket.Decision, 1))
	do(target, "cluster", "setslot", slot, "stable")
	do(source, "cluster", "setslot", slot, "stable")
	if err != nil {
		return fmt.Errorf("take from a slot on the move: %w", err)
	}
	return nil
}
