// Package redisconn connects to Redis: one server, a master behind Sentinel, or
// Redis Cluster. It finds in an error which setting of the daemon is wrong, and
// reads what is added to a stream. It imports nothing of the project.
package redisconn
