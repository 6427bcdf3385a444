package authapi

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/client/guard/headers"
	"github.com/ratelimitd/ratelimitd/internal/config/forwardauth"
	"github.com/ratelimitd/ratelimitd/internal/network"
)

// authRequest is the request that a proxy asks about, as its headers describe it.
type authRequest struct {
	auth     *forwardauth.File
	endpoint *forwardauth.Endpoint
	header   http.Header
	// peer is the address that asks; trusted is set if it is a trusted proxy.
	peer    netip.Addr
	trusted bool
}

func newAuthRequest(auth *forwardauth.File, endpoint *forwardauth.Endpoint, r *http.Request) *authRequest {
	peer, _ := headers.ParseAddress(r.RemoteAddr)
	return &authRequest{auth: auth, endpoint: endpoint, header: r.Header, peer: peer, trusted: auth.Trusts(peer)}
}

// values returns the values of an entry: one, which is empty if the request has
// none, or several, if servers may understand the path in several ways. It reports
// false if the value is not clear: the request has several that differ, and the server
// behind the proxy may read another one; or it is not UTF-8.
func (r *authRequest) values(e *forwardauth.Entry) (values []string, ok bool) {
	if e.From == forwardauth.FromPath {
		path, _, ok := r.uri()
		if !ok {
			return nil, false
		}
		return prefixesOf(path, e.Prefixes)
	}
	value, ok := r.value(e)
	return []string{value}, ok
}

// value is values for an entry that cannot have several.
func (r *authRequest) value(e *forwardauth.Entry) (value string, ok bool) {
	switch e.From {
	case forwardauth.FromConstant:
		return e.Value, true
	case forwardauth.FromClientAddress:
		return shownAddress(r.client(), e), true
	case forwardauth.FromHeader:
		return oneOf(headerValues(r.header, e.Name))
	case forwardauth.FromMethod:
		// Some frameworks take post for POST.
		method, ok := r.proxyHeader(r.endpoint.MethodHeader)
		return strings.ToUpper(method), ok
	}
	_, query, ok := r.uri()
	if !ok {
		return "", false
	}
	return oneOf(parameters(query, e.Name))
}

// uri returns the path and the query of the original request. It reports false if
// they are not clear.
func (r *authRequest) uri() (path, query string, ok bool) {
	uri, ok := r.proxyHeader(r.endpoint.URIHeader)
	// A URI that is sent has no #, and servers treat one differently.
	if !ok || strings.Contains(uri, "#") {
		return "", "", false
	}
	path, query, _ = strings.Cut(uri, "?")
	return path, query, true
}

// headerValues returns all values of a header, even if its name is spelled with _ for -:
// to CGI, WSGI and PHP these are the same.
func headerValues(header http.Header, name string) []string {
	name = http.CanonicalHeaderKey(name)
	values := header[name]
	plain := strings.ReplaceAll(name, "_", "-")
	for other, more := range header {
		if other != name && len(other) == len(name) && strings.EqualFold(strings.ReplaceAll(other, "_", "-"), plain) {
			values = append(slices.Clip(values), more...)
		}
	}
	return values
}

// proxyHeader returns a header that a trusted proxy has set.
func (r *authRequest) proxyHeader(header string) (value string, ok bool) {
	if !r.trusted {
		return "", true
	}
	return oneOf(r.header.Values(header))
}

// oneOf returns the only value, or reports false if they differ.
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

// client returns the address from which the first of the trusted proxies was
// asked, or the zero Addr if they do not say it.
func (r *authRequest) client() netip.Addr {
	if !r.trusted {
		return r.peer
	}
	sender, ok := headers.Sender(r.header.Values("X-Forwarded-For"), r.auth.Trusts)
	if !ok {
		return netip.Addr{}
	}
	return sender
}

// shownAddress returns an address, or its network if the entry has the length of
// one; "" for the zero Addr.
func shownAddress(a netip.Addr, e *forwardauth.Entry) string {
	if !a.IsValid() {
		return ""
	}
	return string(network.AppendText(nil, e.Network.Of(netip.PrefixFrom(a, a.BitLen()))))
}

// parameters returns all values that servers may find for a parameter in a query:
// with ; as another separator, as Rack and others did before the HTML standard of
// 2014, and by names that ASP.NET or PHP take for this one.
func parameters(query, name string) (values []string) {
	for _, separators := range [...]string{"&", "&;"} {
		isSeparator := func(r rune) bool { return strings.ContainsRune(separators, r) }
		for pair := range strings.FieldsFuncSeq(query, isSeparator) {
			key, value, _ := strings.Cut(pair, "=")
			if isParameter(unescapeQuery(key), name) {
				values = append(values, unescapeQuery(value))
			}
		}
		if !strings.Contains(query, ";") {
			break
		}
	}
	return values
}

// isParameter reports whether servers may take a key for a parameter's name:
// ASP.NET ignores the case of letters; PHP ignores leading spaces and the text
// after a NUL, and reads spaces, dots and unclosed brackets as _.
func isParameter(key, name string) bool {
	plain := func(s string) string {
		s, _, _ = strings.Cut(strings.TrimLeft(s, " "), "\x00")
		return strings.NewReplacer(" ", "_", ".", "_", "[", "_").Replace(s)
	}
	return key == name || strings.EqualFold(plain(key), plain(name))
}

func unescapeQuery(text string) string { return unescape(strings.ReplaceAll(text, "+", " ")) }

// unescape decodes each %XX, and keeps a % that begins none.
func unescape(text string) string { return unescapeBut(text, "") }

// unescapeBut is unescape, except for escapes of the kept characters.
func unescapeBut(text, kept string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	plain := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			high, ok := fromHex(text[i+1])
			low, ok2 := fromHex(text[i+2])
			if c := high<<4 | low; ok && ok2 && strings.IndexByte(kept, c) < 0 {
				plain = append(plain, c)
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
