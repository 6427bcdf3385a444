package server

import (
	"net/http"
	"net/netip"
	"strings"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/forwarded"
)

// authRequest is a request that a proxy asks about, as far as the proxy and who
// sent it tell.
type authRequest struct {
	auth     *config.Auth
	endpoint *config.AuthEndpoint
	header   http.Header
	// peer is who asks, and trusted whether that is a trusted proxy.
	peer    netip.Addr
	trusted bool
}

func newAuthRequest(auth *config.Auth, endpoint *config.AuthEndpoint, r *http.Request) *authRequest {
	peer, _ := forwarded.ParseAddress(r.RemoteAddr)
	return &authRequest{auth: auth, endpoint: endpoint, header: r.Header, peer: peer, trusted: auth.Trusts(peer)}
}

// value returns the value of an entry, which is empty where the request has
// none. It reports false where it is not clear: where it stands there several
// times and differs, so that what is behind the proxy may read another than
// this, or is no UTF-8.
func (r *authRequest) value(e *config.AuthEntry) (value string, ok bool) {
	switch e.From {
	case config.FromConstant:
		return e.Value, true
	case config.FromClientAddress:
		return shownAddress(r.client(), e), true
	case config.FromHeader:
		return oneOf(r.header.Values(e.Name))
	case config.FromMethod:
		return r.told(r.endpoint.MethodHeader)
	}
	uri, ok := r.told(r.endpoint.URIHeader)
	// A # is no part of a URI that is sent, and servers differ in what they
	// make of it.
	if !ok || strings.Contains(uri, "#") {
		return "", false
	}
	path, query, _ := strings.Cut(uri, "?")
	if e.From == config.FromPath {
		return prefixOf(plainPath(path), e.Prefixes), true
	}
	return oneOf(parameters(query, e.Name))
}

// told returns what a trusted proxy says in a header.
func (r *authRequest) told(header string) (value string, ok bool) {
	if !r.trusted {
		return "", true
	}
	return oneOf(r.header.Values(header))
}

// oneOf returns the value that all of these are, or reports false.
func oneOf(values []string) (value string, ok bool) {
	if len(values) == 0 {
		return "", true
	}
	for _, v := range values {
		if v != values[0] {
			return "", false
		}
	}
	return values[0], utf8.ValidString(values[0])
}

// client returns the address of who asked the first of the trusted proxies, or
// the zero Addr where they do not tell.
func (r *authRequest) client() netip.Addr {
	if !r.trusted {
		return r.peer
	}
	sender, ok := forwarded.Sender(r.header.Values("X-Forwarded-For"), r.auth.Trusts)
	if !ok {
		return netip.Addr{}
	}
	return sender
}

// shownAddress returns an address, or its network if the entry says how long
// that is; the empty text for the zero Addr.
func shownAddress(a netip.Addr, e *config.AuthEntry) string {
	if !a.IsValid() {
		return ""
	}
	bits := e.IPv6Prefix
	if a.Is4() {
		bits = e.IPv4Prefix
	}
	if bits == 0 {
		return a.String()
	}
	network, err := a.Prefix(bits)
	if err != nil {
		panic(err) // the file has lengths that fit
	}
	return network.String()
}

// prefixOf returns the longest prefix of a path, or "". They come longest first.
func prefixOf(path string, prefixes []string) string {
	for _, p := range prefixes {
		rest, ok := strings.CutPrefix(path, p)
		// Some servers take what follows a ; for parameters of the segment.
		if ok && (rest == "" || rest[0] == '/' || rest[0] == ';' || p == "/") {
			return p
		}
	}
	return ""
}

// plainPath returns a path as servers understand it, so that there is one way
// to write it: escapes decoded, no empty segments, and . and .. followed. It
// returns "" for what is no path.
func plainPath(path string) string {
	if !strings.HasPrefix(path, "/") {
		return ""
	}
	var plain []string
	for segment := range strings.SplitSeq(unescape(path), "/") {
		switch segment {
		case "", ".":
		case "..":
			plain = plain[:max(len(plain)-1, 0)]
		default:
			plain = append(plain, segment)
		}
	}
	return "/" + strings.Join(plain, "/")
}

// parameters returns all values of a parameter in a query.
func parameters(query, name string) (values []string) {
	for pair := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		if unescape(strings.ReplaceAll(key, "+", " ")) == name {
			values = append(values, unescape(strings.ReplaceAll(value, "+", " ")))
		}
	}
	return values
}

// unescape decodes each %XX, and leaves a % that begins none.
func unescape(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	plain := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			high, ok := fromHex(text[i+1])
			low, ok2 := fromHex(text[i+2])
			if ok && ok2 {
				plain = append(plain, high<<4|low)
				i += 2
				continue
			}
		}
		plain = append(plain, text[i])
	}
	return string(plain)
}

func fromHex(c byte) (digit byte, ok bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
