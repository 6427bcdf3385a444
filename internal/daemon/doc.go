// Package daemon is what serve runs: it opens the limits, the store and whatever else the
// settings ask for, wires the server from them, and ends all of it on a signal. It imports
// the packages that it wires.
package daemon
