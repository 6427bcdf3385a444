// Package forwardauth reads the file for forward auth: which proxies may ask
// with a path alone, and by which parts of a request its limits count. It knows
// nothing of rules and of HTTP servers.
package forwardauth
