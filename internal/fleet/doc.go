// Package fleet is the register of the daemons that share a prefix in Redis: who is there,
// of what version, with which rules, and which change of assignments each has seen. It
// keeps out a daemon that disagrees with the others on what all must agree on, and lets
// daemons ask each other. It imports only redisconn and logthin.
package fleet
