// Package xds gets limits from an xDS server, and keeps the last good ones on disk. It
// imports limitsfile, which loads them, and tlsfiles.
//
// client.go follows the server and answers each response: accepted, or refused with all
// errors. snapshot.go checks that a response is a configuration and sorts its resources;
// text.go turns each into the limits file that says the same, and limitsfile loads it.
// cache.go keeps what was accepted, and report.go says how it went. The server is
// trusted: of a response only the size is bounded. integration/xds tests all of it
// against the management server of go-control-plane.
package xds
