// Package fleet is the register of the daemons that share a prefix in Redis:
// how many they are, and whether they agree on what all must agree on. It
// imports redisconn and logthin alone.
package fleet
