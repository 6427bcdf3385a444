package access

import (
	"crypto/x509"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// The names in a certificate are of four kinds, and each is written KIND:NAME, as in
// dns:op.corp: a mail address and a host may be spelt alike and belong to two people.
const (
	kindDNS, kindURI, kindEmail, kindIP = "dns", "uri", "email", "ip"
)

const kindsAllowed = "dns:NAME, uri:URI, email:ADDRESS, ip:ADDRESS"

// bareSchemes are the schemes of URIs without // that a file may give without a kind.
// Anything else before a colon is taken for a kind.
var bareSchemes = []string{"urn", "tag", "did"}

// Names returns the names by which a certificate is known, each with its kind: its URIs,
// DNS names in lower case, e-mail addresses and IP addresses.
func Names(cert *x509.Certificate) []string {
	var names []string
	for _, uri := range cert.URIs {
		names = append(names, kindURI+":"+uri.String())
	}
	for _, name := range cert.DNSNames {
		names = append(names, kindDNS+":"+strings.ToLower(name))
	}
	for _, address := range cert.EmailAddresses {
		names = append(names, kindEmail+":"+address)
	}
	for _, ip := range cert.IPAddresses {
		names = append(names, kindIP+":"+ip.String())
	}
	return names
}

// ofAnyKind returns a name of Names in the spelling of names that a file gives without a
// kind: the colon and what follows it, so that it is not taken for one with a kind (a URI
// may begin with dns:).
func ofAnyKind(name string) string { return name[strings.IndexByte(name, ':'):] }

// certificateName returns a name from a file in the spelling of Names, or in that of
// ofAnyKind if it has no kind. found is "" unless no certificate can have such a name;
// then allowed says what is allowed.
func certificateName(text string) (name, found, allowed string) {
	kind, rest, hasColon := strings.Cut(text, ":")
	if _, err := netip.ParseAddr(text); err == nil || !hasColon || strings.HasPrefix(rest, "//") || slices.Contains(bareSchemes, kind) {
		if !strings.ContainsAny(text, ":/@") {
			text = strings.ToLower(text) // DNS ignores case
		}
		return ":" + text, "", ""
	}
	quoted := yamlfile.Quote(text) + ", which is "
	switch kind {
	case kindDNS:
		if _, err := netip.ParseAddr(rest); err == nil || rest == "" || strings.ContainsAny(rest, ":/@ ") {
			return "", quoted + "no DNS name", "dns:NAME, as dns:op.corp"
		}
		return kindDNS + ":" + strings.ToLower(rest), "", ""
	case kindURI:
		u, err := url.Parse(rest)
		if err != nil || u.Scheme == "" {
			return "", quoted + "no URI", "uri:URI, as uri:spiffe://corp/op"
		}
		return kindURI + ":" + u.String(), "", ""
	case kindEmail:
		if user, host, isAddress := strings.Cut(rest, "@"); !isAddress || user == "" || host == "" {
			return "", quoted + "no e-mail address", "email:ADDRESS, as email:op@corp.example"
		}
		return text, "", ""
	case kindIP:
		ip, err := netip.ParseAddr(rest)
		if err != nil || ip.Zone() != "" {
			return "", quoted + "no IP address", "ip:ADDRESS, as ip:10.0.0.1"
		}
		return kindIP + ":" + ip.Unmap().String(), "", ""
	}
	return "", "the kind " + yamlfile.Quote(kind), kindsAllowed + ", or a name alone, which is of any kind"
}
