// Package trace explains why a descriptor has its rule, or none: how the search went, and
// what may have been meant instead. It imports bucket, glob, rules, words, yamlfile and
// spelling.
package trace
