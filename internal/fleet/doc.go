// Package fleet is the register of the daemons that share a prefix in Redis: it
// counts them, and finds those that disagree on what all must agree on. It imports
// redisconn and logthin alone.
package fleet
