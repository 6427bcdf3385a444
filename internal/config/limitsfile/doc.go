// Package limitsfile reads limits files into rules, and reads them again when they
// change; it also reads domains that come in messages. It imports bucket, period, reload,
// rules, words and yamlfile, and no store.
//
// A file goes this way: source.go finds the files at the paths and skips all others;
// yamlfile parses a document strictly; parser.go walks the domain and its descriptors,
// limit.go reads a limit's numbers, and flags.go reads what a rule does besides them. They
// build the tree of rules.Node. bucket.NewLimit checks the numbers of each limit and finds
// the quantum in which they are exact. merge.go merges files of one domain, where that is
// allowed; warnings.go finds what cannot be meant. All errors are reported,
// each with file, line, column, path, what was found and what is allowed. A single error
// keeps all of the files from taking effect. A domain in a message enters at parser.go.
//
// Rules that did not change keep their counts and the time since which they have been in
// force.
package limitsfile
