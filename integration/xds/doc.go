// Package xds has the tests that hold limits from an xDS server against a real
// management server: the cache and the server of go-control-plane. It is a module
// of its own, so that the daemon does not depend on these.
package xds
