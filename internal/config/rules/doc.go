// Package rules holds the content of limits files in force: domains, the tree of their
// descriptors, and the rule that applies to a descriptor. The reader of the files builds
// the tree; afterwards it never changes, and matching takes no lock. It imports bucket,
// reload, tally and yamlfile, and no store.
package rules
