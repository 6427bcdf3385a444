// Package endpoint is what all APIs have in common: a request is checked, decided,
// counted, and its failure told and logged; messages of gRPC are read and
// written in their bytes, and bodies over HTTP in JSON; spans tell of it. It knows
// no API. It imports decide, accounts, settings, tracing and logthin.
package endpoint
