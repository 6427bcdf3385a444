// Package settings reads the daemon's settings from flags, variables and a file, in that
// order of precedence, with envoyproxy/ratelimit's environment as another spelling of
// them. A setting is one row of a table in table.go. It imports bucket, tlsfiles and
// yamlfile, and nothing else of the daemon.
package settings
