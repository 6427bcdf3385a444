// Package terminaltest provides a pseudo terminal, on Linux, for tests of what is shown
// on one and ended by its keys. It imports asynctest.
package terminaltest
