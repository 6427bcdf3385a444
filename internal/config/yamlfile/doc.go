// Package yamlfile reads YAML strictly, and says for each mistake where it is, what was
// found and what is allowed. It describes mappings by their levels, follows aliases and
// merges, and on request reads what envoyproxy/ratelimit accepts. It imports spelling.
package yamlfile
