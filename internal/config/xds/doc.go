// Package xds gets limits from an xDS server, and keeps the last good ones on disk. It
// imports limitsfile, which loads them, tlsfiles, logthin and wire.
//
// stream.go receives a response as bytes and answers it: accepted, or refused with all
// errors. pace.go spaces the answers and rests after loads that take long. snapshot.go
// estimates the memory of a response, sorts its resources by name, and identifies it by a
// digest. tree.go turns each resource into the tree that a limits file would have, and
// limitsfile loads it. cache.go keeps what was accepted; client.go reconnects, and
// status.go reports to people. integration/xds tests all of it against the management
// server of go-control-plane.
package xds
