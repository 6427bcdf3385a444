// Package integration tests the built binary: as its users run it, against
// real servers.
package integration
