// Package yamlfile reads YAML strictly, and says of each mistake where it
// stands, what was found and what is allowed. It knows mappings by their levels,
// follows aliases and merges, and reads what envoyproxy/ratelimit accepts where
// that is asked for. It imports spelling.
package yamlfile
