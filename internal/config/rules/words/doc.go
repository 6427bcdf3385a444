// Package words describes in plain words what limits allow, and what rules and entries
// are. It imports bucket, rules, spelling, timespan and yamlfile.
package words
