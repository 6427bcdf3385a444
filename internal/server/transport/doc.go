// Package transport keeps gRPC connections: their windows, their age, the certificates of
// their clients, and sockets. It imports accounts and access.
package transport
