// Package takeapi is the daemon's own API, ratelimit.v1: Take, TakeMany,
// TakeStream, GiveBack and Settle over gRPC, and the first and the last two over HTTP. It
// imports endpoint and what that imports, transport, wire, and the API's messages.
package takeapi
