// Package look contains the commands that read or write files of a daemon, without
// needing one: check, log and token. It imports the limits files, the log of decisions
// and access.
package look
