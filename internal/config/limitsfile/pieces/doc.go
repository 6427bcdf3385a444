// Package pieces parses a large limits file a few items at a time, so that its tree is
// never held as a whole. It imports yamlfile.
package pieces
