// Package ask contains the commands that ask a running daemon and change nothing, or only
// what a request takes: take, settle, release, explain, inspect, top, assignments, audit,
// daemons and health. It imports dial, and the register of daemons.
package ask
