// Package transport is how connections of gRPC are kept: their windows, their
// age, and sockets. It imports accounts alone.
package transport
