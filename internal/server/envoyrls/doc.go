// Package envoyrls is Envoy's rate-limit service,
// envoy.service.ratelimit.v3.RateLimitService, over gRPC and as JSON over HTTP.
// It imports endpoint and what that imports, wire, and Envoy's messages.
package envoyrls
