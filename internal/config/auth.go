package config

import (
	"net/netip"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Auth is what a file for forward auth says: of which requests proxies may ask
// with a path alone, and what of a request its limits are counted by. It never
// changes.
type Auth struct {
	// TrustedProxies are those whose word about a request counts. Each is
	// masked.
	TrustedProxies []netip.Prefix
	// Endpoints are in the order of the file.
	Endpoints []*AuthEndpoint
	byName    map[string]*AuthEndpoint
}

// Endpoint returns the endpoint /auth/{name}, or nil.
func (a *Auth) Endpoint(name string) *AuthEndpoint { return a.byName[name] }

// Trusts reports whether an address is that of a trusted proxy. It takes one
// that is not an IPv4 address within an IPv6 one, and has no zone.
func (a *Auth) Trusts(address netip.Addr) bool {
	return slices.ContainsFunc(a.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(address) })
}

// AuthEndpoint says what /auth/{name} asks.
type AuthEndpoint struct {
	// Name is 1 to 64 of A-Z, a-z, 0-9, -, _, . and ~.
	Name string
	// File and Line, which counts from 1, are where it stands.
	File string
	Line int
	// Proxy is which one asks: "nginx", "caddy" or "traefik".
	Proxy string
	// URIHeader and MethodHeader are the headers with which that proxy tells of
	// the original request.
	URIHeader, MethodHeader string
	Domain                  string
	// DeniedStatus is the HTTP status of a denial, 400 to 499.
	DeniedStatus int
	// Descriptors are one or more; they pass together.
	Descriptors []AuthDescriptor

	domainAt yamlfile.Position
}

// AuthDescriptor is a descriptor whose values come from a request.
type AuthDescriptor struct {
	Entries []AuthEntry
	// Cost is 0 to bucket.MaxCost; 0 peeks.
	Cost int64
}

// AuthEntry is an entry whose value comes from a request.
type AuthEntry struct {
	Key  string
	From AuthSource
	// Value is that of FromConstant.
	Value string
	// Name is that of the header or of the query parameter.
	Name string
	// Prefixes are the paths of FromPath, the longest first. Each begins with a
	// slash and ends, but for "/", without.
	Prefixes []string
	// IPv4Prefix and IPv6Prefix are how many bits of a client's address count, 1
	// to 32 and 1 to 128; 0 means the whole address as it is.
	IPv4Prefix, IPv6Prefix int
	// OnMissing is what happens where the request has no such value.
	OnMissing OnMissing
}

// AuthSource is where a value comes from.
type AuthSource uint8

const (
	// FromConstant is the file itself.
	FromConstant AuthSource = iota
	// FromClientAddress is the address of the client before all trusted proxies.
	FromClientAddress
	// FromHeader is a header.
	FromHeader
	// FromMethod is the method of the original request.
	FromMethod
	// FromPath is that of some prefixes which the original request's path has.
	FromPath
	// FromQuery is a parameter in the original request's query.
	FromQuery
)

// authSources are the names of the sources but for FromConstant, which is
// written as a value.
var authSources = [...]string{
	FromClientAddress: "client_address", FromHeader: "header", FromMethod: "method", FromPath: "path", FromQuery: "query",
}

// String returns the source as the file has it.
func (s AuthSource) String() string {
	if s == FromConstant {
		return "value"
	}
	return authSources[s]
}

// isTold reports whether only a trusted proxy can know the value.
func (s AuthSource) isTold() bool { return s == FromMethod || s == FromPath || s == FromQuery }

// OnMissing is what happens to a request that lacks a value.
type OnMissing uint8

const (
	// MissingEmpty takes the empty text for the value, so that all requests
	// that lack it share a counter.
	MissingEmpty OnMissing = iota
	// MissingOmit leaves the descriptor out.
	MissingOmit
	// MissingDeny denies the request.
	MissingDeny
)

var onMissingNames = [...]string{MissingEmpty: "empty", MissingOmit: "omit", MissingDeny: "deny"}

// String returns the word as the file has it.
func (m OnMissing) String() string { return onMissingNames[m] }

// proxies are those that can ask, with what each tells of a request and how it
// is denied.
var proxies = []struct {
	name, uri, method string
	denied            int
}{
	{"nginx", "X-Original-URI", "X-Original-Method", 403},
	{"caddy", "X-Forwarded-Uri", "X-Forwarded-Method", 429},
	{"traefik", "X-Forwarded-Uri", "X-Forwarded-Method", 429},
}
