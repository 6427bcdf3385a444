package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	clusterMasters = 3
	clusterSlots   = 16384
	portAttempts   = 5
)

// redisServers are a single server or the masters of a cluster.
type redisServers struct {
	servers   []*process
	clients   []*redis.Client
	addresses []string
}

// startRedis starts n redis-servers from PATH that keep nothing on disk, as a cluster if
// there are several.
func startRedis(ctx context.Context, dir string, n int) (*redisServers, error) {
	r := &redisServers{}
	for i := range n {
		if err := r.startOne(ctx, filepath.Join(dir, fmt.Sprintf("redis-%d-of-%d", i+1, n)), n > 1); err != nil {
			r.stop()
			return nil, err
		}
	}
	if n > 1 {
		if err := r.formCluster(ctx); err != nil {
			r.stop()
			return nil, fmt.Errorf("form a cluster: %w", err)
		}
	}
	return r, nil
}

func (r *redisServers) startOne(ctx context.Context, dir string, clustered bool) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var err error
	for range portAttempts { // another process may have the port
		// With the bus port, 10000 above, it lies below the ports that
		// outgoing connections get.
		port := strconv.Itoa(20000 + rand.IntN(2000))
		args := []string{"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no"}
		if clustered {
			args = append(args, "--cluster-enabled", "yes", "--cluster-node-timeout", "15000")
		}
		var p *process
		if p, _, err = startProcess(ctx, "Ready to accept connections", "redis-server", args...); err == nil {
			address := net.JoinHostPort("127.0.0.1", port)
			r.servers = append(r.servers, p)
			r.addresses = append(r.addresses, address)
			r.clients = append(r.clients, redis.NewClient(&redis.Options{Addr: address, PoolSize: 1, MaxRetries: -1}))
			return nil
		}
	}
	return err
}

// formCluster gives each server its share of the slots and waits until all
// serve.
func (r *redisServers) formCluster(ctx context.Context) error {
	n := len(r.clients)
	for i, c := range r.clients {
		if err := c.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
			return err
		}
		if err := c.Do(ctx, "cluster", "addslotsrange", i*clusterSlots/n, (i+1)*clusterSlots/n-1).Err(); err != nil {
			return err
		}
		for _, other := range r.addresses {
			host, port, _ := net.SplitHostPort(other)
			if err := c.ClusterMeet(ctx, host, port).Err(); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	for !r.whole(ctx) {
		select {
		case <-ctx.Done():
			return errors.New("the nodes do not agree")
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

func (r *redisServers) whole(ctx context.Context) bool {
	for _, c := range r.clients {
		info, err := c.ClusterInfo(ctx).Result()
		if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", len(r.clients))) {
			return false
		}
	}
	return true
}

func (r *redisServers) stop() {
	for i, s := range r.servers {
		r.clients[i].Close()
		s.stop()
	}
}

// redisReading is what all servers together have done since they started.
type redisReading struct {
	cpu time.Duration
	// scripts are the calls of the daemon's script, commands all that came
	// over the network.
	scripts, commands int64
}

// inScripts are the commands that only scripts run.
var inScripts = map[string]bool{"time": true, "mget": true, "get": true, "set": true, "del": true}

// ours are those that this program sends.
var ours = map[string]bool{"info": true}

func (r *redisServers) read(ctx context.Context) (redisReading, error) {
	var all redisReading
	for i, c := range r.clients {
		cpu, err := cpuTime(r.servers[i].pid())
		if err != nil {
			return all, err
		}
		all.cpu += cpu
		info, err := c.Info(ctx, "commandstats").Result()
		if err != nil {
			return all, fmt.Errorf("INFO of %s: %w", r.addresses[i], err)
		}
		all.count(info)
	}
	return all, nil
}

// count adds the lines cmdstat_NAME:calls=N,... of an INFO.
func (all *redisReading) count(info string) {
	for line := range strings.Lines(info) {
		rest, ok := strings.CutPrefix(line, "cmdstat_")
		if !ok {
			continue
		}
		name, rest, _ := strings.Cut(rest, ":calls=")
		number, _, _ := strings.Cut(rest, ",")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || inScripts[name] || ours[name] {
			continue
		}
		all.commands += n
		if name == "evalsha" || name == "eval" {
			all.scripts += n
		}
	}
}
