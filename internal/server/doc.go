// Package server is the daemon's ports and their lives: listening, TLS, health,
// the admin pages, metrics, and the end. The APIs on the ports are packages of
// their own: envoyrls, takeapi and authapi, which it imports with all below them.
package server
