// Package tally counts the results of descriptors that matched a rule: by result, by
// value, by limit, and by top subject. Counts survive reloads. It knows no rules, and
// imports bucket, for the names of limits, and top.
package tally
