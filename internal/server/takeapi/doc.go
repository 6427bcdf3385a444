// Package takeapi is the daemon's own API, ratelimit.v1: Take, TakeMany, TakeStream,
// GiveBack, Settle and Release over gRPC, and Take, GiveBack, Settle and Release over
// HTTP. It imports endpoint and what that imports, transport, wire, and the API's messages.
package takeapi
