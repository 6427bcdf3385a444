// Package transport is how connections of gRPC are kept: their windows, their age,
// the certificates of their clients, and sockets. It imports accounts and access.
package transport
