// Package endpoint is what all APIs have in common: a request is checked, held
// against the rights of its caller, decided, counted, and its failure told and
// logged; messages of gRPC are read and written in their bytes, and bodies over HTTP
// in JSON; spans tell of it. It knows no API. It imports decide, durations, accounts,
// access, settings, tracing, transport and logthin.
package endpoint
