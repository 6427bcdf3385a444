// Package filecmd contains the commands that read or write files of a daemon, without
// needing one: check, token and replay. It imports the limits files, access and replay.
package filecmd
