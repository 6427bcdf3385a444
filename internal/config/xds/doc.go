// Package xds gets limits from an xDS server, and keeps the last good ones on
// disk. It imports config, which loads them, tlsfiles, logthin and wire.
package xds
