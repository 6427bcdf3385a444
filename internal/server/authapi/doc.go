// Package authapi answers proxies that ask about a request with its headers
// alone and read a status. It imports endpoint and what that imports, and the
// file of forward auth, and forwarded.
package authapi
