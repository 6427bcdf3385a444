// Package parser turns one limits file, or a tree that a program made, into a part of a
// domain, and reports everything that is wrong with it. It imports bucket, glob, pieces,
// period, rules, words and yamlfile.
//
// parser.go walks the domain and its descriptors, limit.go reads a limit's numbers, and
// flags.go reads what a rule does besides them; they build the tree of rules.Node.
// merge.go merges files of one domain, where that is allowed; warnings.go and bind.go
// find what cannot be meant.
package parser
