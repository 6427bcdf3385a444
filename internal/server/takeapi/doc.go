// Package takeapi is the daemon's own API, ratelimit.v1: Take, TakeMany,
// TakeStream and GiveBack over gRPC, and the first and the last over HTTP. It
// imports endpoint and what that imports, transport, wire, and the API's messages.
package takeapi
