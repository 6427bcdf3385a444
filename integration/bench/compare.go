package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// comparison is a server that somebody else runs.
type comparison struct {
	name, address string
	pid           int // 0: its processor time is not known
}

// comparisons is the flag -compare, which may be given several times.
type comparisons []comparison

func (c *comparisons) String() string { return "" }

// Set reads NAME=HOST:PORT[,PID].
func (c *comparisons) Set(text string) error {
	const allowed = "NAME=HOST:PORT, or NAME=HOST:PORT,PID"
	name, rest, ok := strings.Cut(text, "=")
	address, pid, hasPID := strings.Cut(rest, ",")
	if _, _, err := net.SplitHostPort(address); !ok || name == "" || err != nil {
		return fmt.Errorf("found %q; allowed: %s", text, allowed)
	}
	one := comparison{name: name, address: address}
	if hasPID {
		n, err := strconv.Atoi(pid)
		if err != nil || n < 1 {
			return fmt.Errorf("found the process id %q; allowed: %s", pid, allowed)
		}
		one.pid = n
	}
	*c = append(*c, one)
	return nil
}
