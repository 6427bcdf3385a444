// Package redisconn connects to Redis: one server, a master behind Sentinel, or
// Redis Cluster. It knows from an error which setting of the daemon is wrong. It
// imports bucket for ErrRefused alone.
package redisconn
