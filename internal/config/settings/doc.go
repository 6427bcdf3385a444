// Package settings reads the daemon's settings from flags, variables and a file, in that
// order of precedence, with envoyproxy/ratelimit's environment as another spelling of
// them. A setting is a field of Settings, whose type and tags say its name, default, help
// and allowed values; viper merges the values of all sources and decodes them. It imports
// bucket, statsd, tlsfiles and yamlfile, and nothing else of the daemon.
package settings
