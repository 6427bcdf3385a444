// Package limitsfile reads limits files into rules, and reads them again when they
// change; it also reads domains that come in messages. It imports parser, reload, rules
// and yamlfile, and no store.
//
// A file goes this way: source.go finds the files at the paths and skips all others;
// yamlfile parses a document strictly; parser makes it a part of a domain,
// for which bucket.NewLimit checks the numbers of each limit and finds the quantum in
// which they are exact; then files of one domain are merged, where that is allowed, and
// what cannot be meant is found. All errors are reported, each with file, line, column,
// path, what was found and what is allowed. A single error keeps all of the files from
// taking effect. A domain in a message enters where parser does.
//
// Rules that did not change keep their counts and the time since which they have been in
// force.
package limitsfile
