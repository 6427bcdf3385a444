package redisconn

import (
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Replies to CLUSTER SLOTS of the node at 10.0.0.9:7000.
func TestClusterSlotsAreReadWithTheirHosts(t *testing.T) {
	one := func(node ...any) []any { return []any{[]any{int64(0), int64(16383), node}} }
	for _, c := range []struct {
		name  string
		reply []any
		want  string // the address of the node
		id    string
		err   string
	}{
		{"an address", one("10.0.0.1", int64(7000), "a", []any{}), "10.0.0.1:7000", "a", ""},
		{"an IPv6 address", one("fd00::1", int64(7000), "a", []any{}), "[fd00::1]:7000", "a", ""},
		{"a hostname", one("redis-1", int64(7000), "a", []any{"ip", "10.0.0.1"}), "redis-1:7000", "a", ""},
		{"an old Redis", one("10.0.0.1", int64(7000), "a"), "10.0.0.1:7000", "a", ""},
		{"a very old Redis", one("10.0.0.1", int64(7000)), "10.0.0.1:7000", "", ""},
		{"an unknown endpoint", one(nil, int64(7001), "a", []any{"ip", "10.0.0.1", "hostname", "redis-1"}), "10.0.0.9:7001", "a", ""},
		{"no address yet", one("", int64(7001), "a", []any{}), "10.0.0.9:7001", "a", ""},
		{"no hostname", one("?", int64(7001), "a", []any{"ip", "10.0.0.1"}), "10.0.0.1:7001", "a", ""},
		{"no hostname and no address", one("?", int64(7001), "a", []any{"ip", ""}), "?:7001", "a", ""},
		{"no list", []any{"x"}, "", "", "range 0 is x"},
		{"no numbers", []any{[]any{"0", int64(1)}}, "", "", "range 0 is from 0 to 1"},
		{"no node", []any{[]any{int64(0), int64(1), "x"}}, "", "", "a node is x"},
		{"no port", one("10.0.0.1", "7000"), "", "", "a node's port is 7000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &endpoints{log: slog.New(slog.DiscardHandler)}
			got, err := e.slots("10.0.0.9:7000", c.reply)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want one with %q", err, c.err)
				}
				return
			}
			want := []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{ID: c.id, Addr: c.want}}}}
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v", got, err)
			}
			if got := e.complete(":7002"); got != "10.0.0.9:7002" {
				t.Errorf("a redirection to :7002 leads to %s", got)
			}
		})
	}
}
