package redisstore_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// wantRefusal fails the test unless Redis refuses the store at the start, with
// an error that is one line and holds these texts.
func wantRefusal(t *testing.T, o testOptions, texts ...string) {
	t.Helper()
	s := open(t, o)
	var err error
	asynctest.Eventually(t, "Redis answers", func() bool {
		err = s.Refusal(context.Background()) // nil as well where there was no answer in time
		return err != nil
	})
	if !errors.Is(err, bucket.ErrRefused) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("the error is %v, want a refusal in one line", err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error %q lacks %q", err, text)
		}
	}
	t.Log(err)
}

func password(p string) func() (string, error) { return func() (string, error) { return p, nil } }

// Redis says what it does not accept, and the store adds which setting that is.
func TestRefusalNamesTheSetting(t *testing.T) {
	t.Parallel()
	guarded := redistest.Start(t, "--requirepass", "right-secret").Addr()
	plain := redistest.Start(t).Addr()
	cluster := redistest.Cluster(t)
	for _, c := range []struct {
		name  string
		o     connOptions
		texts []string
	}{
		{"a wrong password", connOptions{Mode: redisconn.Single, Addresses: []string{guarded}, Password: password("wrong-secret")},
			[]string{"user or password is not accepted at " + guarded, "redis.username", "redis.password_file", "WRONGPASS"}},
		{"no password", connOptions{Mode: redisconn.Single, Addresses: []string{guarded}},
			[]string{"a password is needed at " + guarded, "redis.password or redis.password_file", "NOAUTH"}},
		{"an unknown user", connOptions{Mode: redisconn.Single, Addresses: []string{plain}, Username: "nobody", Password: password("secret")},
			[]string{"user or password is not accepted at " + plain, "WRONGPASS"}},
		{"a database that there is not", connOptions{Mode: redisconn.Single, Addresses: []string{plain}, Database: 99},
			[]string{"there is no such database at " + plain, "redis.database", "DB index is out of range"}},
		{"a cluster that is none", connOptions{Mode: redisconn.Cluster, Addresses: []string{plain}},
			[]string{"there is no cluster at " + plain, "redis.mode", "cluster support disabled"}},
		{"a cluster that is none, and a node that is away", connOptions{Mode: redisconn.Cluster, Addresses: []string{"127.0.0.1:1", plain}},
			[]string{"there is no cluster at " + plain}},
		{"a cluster that wants a password", connOptions{Mode: redisconn.Cluster, Addresses: []string{guarded}},
			[]string{"a password is needed at " + guarded}},
		{"a node of a cluster", connOptions{Mode: redisconn.Single, Addresses: cluster[:1]},
			[]string{"there is a cluster at " + cluster[0], "redis.mode", "CROSSSLOT"}},
		{"a database of a node", connOptions{Mode: redisconn.Single, Addresses: cluster[:1], Database: 1},
			[]string{"there is no such database at " + cluster[0], "SELECT is not allowed"}},
		{"sentinels that are none", connOptions{Mode: redisconn.Sentinel, Addresses: []string{plain}, SentinelMaster: "limits"},
			[]string{"is not known at the sentinels " + plain, "redis.mode"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := options(c.o.Mode, c.o.Addresses...)
			o.Username, o.Password, o.Database, o.SentinelMaster = c.o.Username, c.o.Password, c.o.Database, c.o.SentinelMaster
			wantRefusal(t, o, c.texts...)
		})
	}
}

// A user that lacks a needed right is refused. A few rights are not needed.
func TestMissingRightIsRefused(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	s := open(t, aclOptions(redisconn.Single, addr))
	for _, c := range []struct {
		without string
		refused bool
	}{
		{"+evalsha", true}, {"+time", true}, {"+mget", true}, {"+set", true}, {"+del", true},
		{"+eval", false}, {"+script|load", false}, {"+info", false},
	} {
		t.Run("without "+c.without, func(t *testing.T) {
			var commands []string
			for _, command := range aclSingle {
				if command != c.without {
					commands = append(commands, command)
				}
			}
			setUser(t, []string{addr}, commands)
			err := open(t, aclOptions(redisconn.Single, addr)).Refusal(context.Background())
			if errors.Is(err, bucket.ErrRefused) != c.refused || err == nil == c.refused {
				t.Errorf("without %s: %v", c.without, err)
			}
			if c.refused && !strings.Contains(err.Error(), "the '"+c.without[1:]+"' command") {
				t.Errorf("without %s the error does not name it: %v", c.without, err)
			}
		})
	}
	setUser(t, []string{addr}, append(aclSingle, "resetkeys", "~other{*"))
	wantRefusal(t, aclOptions(redisconn.Single, addr), "on the keys rl{*", "redis.username", "docs/redis.md", "NOPERM")
	setUser(t, []string{addr}, aclSingle)
	do(t, redistest.Client(t, addr), "flushall") // a user who may not delete leaves a key, which expires
	if err := s.Refusal(context.Background()); err != nil {
		t.Errorf("the smallest user gives %v", err)
	}
	if keys := redistest.Keys(t, redistest.Client(t, addr), "rl"); len(keys) > 0 {
		t.Errorf("it leaves the keys %v", keys)
	}
}

func TestRefusalOfSentinelsNamesTheSetting(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	sentinels, master, _ := redistest.StartSentinel(t, "limits")
	o := options(redisconn.Sentinel, sentinels...)
	o.SentinelMaster = "limits"
	if err := open(t, o).Refusal(ctx); err != nil {
		t.Errorf("what is right gives %v", err)
	}
	wrong := o
	wrong.SentinelMaster = "limit"
	wantRefusal(t, wrong, `the master "limit" is not known at`, "redis.sentinel_master")
	wrong = o
	wrong.Username, wrong.Password = "nobody", password("secret")
	wantRefusal(t, wrong, `not accepted at the master "limits"`, "redis.username", "WRONGPASS")
	for _, addr := range sentinels {
		do(t, redistest.Client(t, addr), "acl", "setuser", "guard", "on", "resetpass", ">secret", "resetchannels", "allchannels", "+ping")
	}
	wrong = o
	wrong.SentinelUsername, wrong.SentinelPassword = "guard", "wrong"
	wantRefusal(t, wrong, "not accepted at the sentinels "+strings.Join(sentinels, ", ")+";", "redis.sentinel_username and redis.sentinel_password", "WRONGPASS")
	wrong.SentinelPassword = "secret"
	wantRefusal(t, wrong, "the sentinels", "redis.sentinel_username", "NOPERM")
	for _, addr := range sentinels {
		do(t, redistest.Client(t, addr), "acl", "setuser", "default", "resetpass", ">secret")
	}
	wantRefusal(t, o, "the sentinels", "redis.sentinel_password", "NOAUTH")
	o.SentinelPassword = "secret"
	// One sentinel that answers is enough.
	o.Addresses = append([]string{"127.0.0.1:1"}, sentinels...)
	if err := open(t, o).Refusal(ctx); err != nil {
		t.Errorf("with a sentinel that is away: %v", err)
	}
	master.Pause()
	defer master.Resume()
	o.Timeout = time.Second
	if err := open(t, o).Refusal(ctx); err != nil {
		t.Errorf("a master that stands still gives %v", err)
	}
}

// A bad certificate is a refusal, unlike a network that fails.
func TestBadCertificateIsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cert, roots := selfSigned(t, "redis.test")
	serve := func(config *tls.Config) string {
		listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
		if err != nil {
			t.Fatal(err)
		}
		redistest.Forward(t, listener, server.Addr())
		return listener.Addr().String()
	}
	open1 := serve(&tls.Config{Certificates: []tls.Certificate{cert}})
	mutual := serve(&tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots})
	_, strangers := selfSigned(t, "redis.test")
	for _, c := range []struct {
		name   string
		addr   string
		config *tls.Config
		texts  []string
	}{
		{"an unknown authority", open1, &tls.Config{RootCAs: strangers, ServerName: "redis.test"},
			[]string{"the certificate of " + open1 + " is not accepted", "redis.tls.ca", "unknown authority"}},
		{"another name", open1, &tls.Config{RootCAs: roots, ServerName: "redis.example"},
			[]string{"the certificate of " + open1 + " is not accepted", "redis.tls.server_name", "redis.example"}},
		{"an expired certificate", open1, &tls.Config{RootCAs: roots, ServerName: "redis.test", Time: func() time.Time { return time.Now().Add(24 * time.Hour) }},
			[]string{"the certificate of " + open1 + " is not accepted", "expired"}},
		{"another check of the name", open1, &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: strangers})
			return err
		}}, []string{"the certificate of " + open1 + " is not accepted"}},
		{"a certificate that the server wants", mutual, &tls.Config{RootCAs: roots, ServerName: "redis.test"},
			[]string{"certificate is not accepted at " + mutual, "redis.tls.cert", "certificate required"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := options(redisconn.Single, c.addr)
			o.TLS = func(string) (*tls.Config, error) { return c.config, nil }
			wantRefusal(t, o, c.texts...)
			o.Mode = redisconn.Cluster
			wantRefusal(t, o, c.texts...)
			o.Mode, o.SentinelMaster, o.Addresses = redisconn.Sentinel, "limits", []string{c.addr, c.addr}
			wantRefusal(t, o, strings.Replace(c.texts[0], c.addr, "the sentinels "+c.addr+", "+c.addr, 1))
		})
	}
}

// Trouble that may pass in a moment is no refusal, and is not waited for.
func TestPassingTroubleIsNoRefusal(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	busy := redistest.Start(t)
	replica := redistest.Start(t, "--replicaof", "127.0.0.1 1")
	full := redistest.Start(t, "--maxmemory", "1")
	stale := redistest.Start(t, "--replicaof", "127.0.0.1 1", "--replica-serve-stale-data", "no")
	for name, o := range map[string]testOptions{
		"a Redis that decides":   options(redisconn.Single, busy.Addr()),
		"one hash tag":           func() testOptions { o := options(redisconn.Single, busy.Addr()); o.HashTags = 1; return o }(),
		"a cluster that decides": options(redisconn.Cluster, redistest.Cluster(t)...),
		"nothing":                options(redisconn.Single, "127.0.0.1:1"),
		"nothing of a cluster":   options(redisconn.Cluster, "127.0.0.1:1"),
		"nothing of sentinels": func() testOptions {
			o := options(redisconn.Sentinel, "127.0.0.1:1")
			o.SentinelMaster = "x"
			return o
		}(),
		"a server without words":  options(redisconn.Single, silent.Addr().String()),
		"no such host":            options(redisconn.Single, "redis.invalid:6379"),
		"a replica":               options(redisconn.Single, replica.Addr()),
		"a server without memory": options(redisconn.Single, full.Addr()),
		"a replica of nothing":    options(redisconn.Single, stale.Addr()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Timeout = time.Second // which the silent one takes
			if err := open(t, o).Refusal(context.Background()); err != nil {
				t.Errorf("the error is %v", err)
			}
		})
	}
}
