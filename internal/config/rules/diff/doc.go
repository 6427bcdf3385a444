// Package diff describes what changes for requests when rules replace others. It imports
// bucket, glob, rules, words and yamlfile.
package diff
