package forwardauth

import (
	"net/netip"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/network"
)

// File is the content of a file for forward auth: the endpoints at which proxies ask with
// just a path, and the trusted proxies. It never changes.
type File struct {
	// TrustedProxies are the networks of proxies that may say what the original request
	// was. Each is masked.
	TrustedProxies []netip.Prefix
	// Endpoints are in the order of the file.
	Endpoints []*Endpoint
	byName    map[string]*Endpoint
}

// Endpoint returns the endpoint /auth/{name}, or nil.
func (f *File) Endpoint(name string) *Endpoint { return f.byName[name] }

// Trusts reports whether an address belongs to a trusted proxy. It must not be an IPv4
// address in IPv6 form, and must have no zone.
func (f *File) Trusts(address netip.Addr) bool {
	return slices.ContainsFunc(f.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(address) })
}

// Endpoint defines what /auth/{name} asks.
type Endpoint struct {
	// Name is 1 to 64 of A-Z, a-z, 0-9, -, _, . and ~.
	Name string
	// File and Line, which counts from 1, are its position.
	File string
	Line int
	// Proxy is the proxy that asks: "nginx", "caddy" or "traefik".
	Proxy string
	// URIHeader and MethodHeader are the headers in which that proxy describes the
	// original request.
	URIHeader, MethodHeader string
	Domain                  string
	// DeniedStatus is the HTTP status of a denial, 400 to 499.
	DeniedStatus int
	// Descriptors has at least one; they pass together.
	Descriptors []Descriptor

	domainAt yamlfile.Position
}

// Descriptor is a descriptor whose values come from a request.
type Descriptor struct {
	Entries []Entry
	// Cost is 0 to bucket.MaxRequests; 0 peeks.
	Cost int64
}

// Entry is an entry whose value comes from a request.
type Entry struct {
	Key  string
	From Source
	// Value is the value for FromConstant.
	Value string
	// Name is the name of the header or query parameter.
	Name string
	// Prefixes are the paths for FromPath, the longest first. Each begins with a slash;
	// none ends with one, except "/".
	Prefixes []string
	// Network is how many bits of a client's address count.
	Network network.Lengths
	// OnMissing is what happens if the request has no such value.
	OnMissing OnMissing
}

// Source is where a value comes from.
type Source uint8

const (
	// FromConstant is the file itself.
	FromConstant Source = iota
	// FromClientAddress is the address of the client before all trusted proxies.
	FromClientAddress
	// FromHeader is a header.
	FromHeader
	// FromMethod is the method of the original request.
	FromMethod
	// FromPath is the longest of several prefixes that matches the original request's
	// path.
	FromPath
	// FromQuery is a parameter in the original request's query.
	FromQuery
)

// sources are the sources that a file can name. FromConstant is written as a value.
var sources = []Source{FromClientAddress, FromHeader, FromMethod, FromPath, FromQuery}

var sourceNames = [...]string{
	FromConstant: "value", FromClientAddress: "client_address", FromHeader: "header", FromMethod: "method", FromPath: "path", FromQuery: "query",
}

// String returns the source as spelled in the file.
func (s Source) String() string { return sourceNames[s] }

// isOfProxy reports whether only a trusted proxy can know the value.
func (s Source) isOfProxy() bool { return s == FromMethod || s == FromPath || s == FromQuery }

// OnMissing is what happens to a request that lacks a value.
type OnMissing uint8

const (
	// MissingEmpty uses the empty text as the value, so all requests that lack it share a
	// counter.
	MissingEmpty OnMissing = iota
	// MissingOmit leaves the descriptor out.
	MissingOmit
	// MissingDeny denies the request.
	MissingDeny
)

var onMissingNames = [...]string{MissingEmpty: "empty", MissingOmit: "omit", MissingDeny: "deny"}

// String returns the word used in the file.
func (m OnMissing) String() string { return onMissingNames[m] }

// proxy is a proxy that can ask, with the headers in which it describes a request and the
// status of its denials.
type proxy struct {
	name, uri, method string
	denied            int
}

// String returns its name.
func (p proxy) String() string { return p.name }

var proxies = []proxy{
	{name: "nginx", uri: "X-Original-URI", method: "X-Original-Method", denied: 403},
	{name: "caddy", uri: "X-Forwarded-Uri", method: "X-Forwarded-Method", denied: 429},
	{name: "traefik", uri: "X-Forwarded-Uri", method: "X-Forwarded-Method", denied: 429},
}
