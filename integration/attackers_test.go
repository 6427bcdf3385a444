package integration

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// target has the addresses of a daemon.
type target struct{ grpc, http, admin string }

// attacker does its worst until the context ends. No answer is an error to it.
type attacker struct {
	name   string
	attack func(ctx context.Context, v *target)
}

// attackers returns all attackers.
func attackers() []attacker {
	var all []attacker
	for _, some := range [][]attacker{jsonAttackers(), messageAttackers(), streamAttackers(), halfOpenAttackers(), headerAttackers(), connectionAttackers(), adminAttackers()} {
		all = append(all, some...)
	}
	return all
}

// These variables tell a process of attackers what to do.
const (
	attackNames = "ATTACKERS" // separated by commas
	attackAt    = "ATTACK_AT" // the addresses of the ports
	attackFor   = "ATTACK_FOR"
)

// attack starts attackers in a process that gives way to all others: real
// attackers are on other machines.
func (v *victim) attack(t *testing.T, list []attacker, long time.Duration) *exec.Cmd {
	t.Helper()
	var names []string
	for _, a := range list {
		names = append(names, a.name)
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), attackNames+"="+strings.Join(names, ","), attackAt+"="+v.grpc+","+v.http+","+v.admin, attackFor+"="+long.String())
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

// attackIfTold reports whether this process is one of attackers. It has then
// done their work.
func attackIfTold() bool {
	names, ok := os.LookupEnv(attackNames)
	if !ok {
		return false
	}
	const lowest = 19
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, lowest)
	long, err := time.ParseDuration(os.Getenv(attackFor))
	if err != nil {
		panic(err)
	}
	at := strings.Split(os.Getenv(attackAt), ",")
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	var all sync.WaitGroup
	for _, a := range attackers() {
		if strings.Contains(","+names+",", ","+a.name+",") {
			all.Go(func() { a.attack(ctx, &target{grpc: at[0], http: at[1], admin: at[2]}) })
		}
	}
	all.Wait()
	return true
}
