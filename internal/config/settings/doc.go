// Package settings reads the daemon's settings from flags, variables and a file, in that
// order of precedence, with envoyproxy/ratelimit's environment as another spelling of
// them. A setting is one row of the table in table.go, whose kind checks its values; viper
// merges the values of all sources and decodes them into Settings by the names of its
// fields. It imports bucket, statsd, tlsfiles and yamlfile, and nothing else of the
// daemon.
package settings
