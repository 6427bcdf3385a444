// Package filecmd contains the commands that read or write files of a daemon, without
// needing one: check and token. It imports the limits files and access.
package filecmd
