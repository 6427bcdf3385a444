// Package script has the Lua script that decides on Redis (lua/), and encodes its input
// and decodes its reply. It imports only bucket, and does no I/O.
package script
