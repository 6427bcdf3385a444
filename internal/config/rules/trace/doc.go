// Package trace shows how the entries of a descriptor lead to its rule, or where they leave
// the tree of a domain's limits and what may have been meant there. It imports bucket,
// rules, words, yamlfile and spelling.
package trace
