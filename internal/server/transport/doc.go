// Package transport keeps gRPC connections: their windows, their age, the certificates of
// their clients, and sockets. It imports overload and access.
package transport
