package xds

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	xdsv3 "github.com/ratelimitd/ratelimitd/proto/ratelimit/xds/v3"
)

// TypeURL is the type of the requested resources.
const TypeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// readResponse returns the configuration in a response, and a digest of it. What is not
// the requested configuration becomes an invalid resource.
//
// Resources carry their type themselves, and servers leave out the rest, so type_url and
// version_info are needed only where there is nothing else: an empty response removes all
// limits. A server whose snapshot lacks the type sends one without a version. The nonce
// may be missing; the answer then lacks it too.
func readResponse(r *discoveryv3.DiscoveryResponse) (digest [sha256.Size]byte, resources []limitsfile.Resource) {
	for _, content := range r.GetResources() {
		reload.Yield()
		resources = append(resources, readResource(content))
	}
	if err := checkResponse(r); err != nil {
		resources = []limitsfile.Resource{{Name: "the response", Err: err}}
	}
	// A server sends them in random order; equal configurations must give equal errors.
	slices.SortFunc(resources, func(a, b limitsfile.Resource) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), bytes.Compare(a.Text, b.Text))
	})
	h := sha256.New()
	for i := range resources {
		r := &resources[i]
		if r.Name == "" {
			r.Name = fmt.Sprintf("resource %d of %d", i+1, len(resources))
		}
		fmt.Fprintf(h, "%q %v %d\n%s", r.Name, r.Err, len(r.Text), r.Text)
	}
	return [sha256.Size]byte(h.Sum(nil)), resources
}

// checkResponse returns why a response is not the requested configuration.
func checkResponse(r *discoveryv3.DiscoveryResponse) error {
	const allowed = "allowed: resources, or for a configuration without any the version_info and the type_url " + TypeURL
	switch {
	case !isOfType(r):
		return fmt.Errorf("the type_url %s; allowed: %s, which was asked for", yamlfile.Quote(r.GetTypeUrl()), TypeURL)
	case len(r.GetResources()) > 0:
	case r.GetTypeUrl() == "":
		return errors.New("neither resources nor a type_url; " + allowed)
	case r.GetVersionInfo() == "":
		return errors.New("neither resources nor a version_info; " + allowed)
	}
	return nil
}

// isOfType reports whether a response is of the requested type, or does not say.
func isOfType(r *discoveryv3.DiscoveryResponse) bool {
	return r.GetTypeUrl() == "" || r.GetTypeUrl() == TypeURL
}

// readResource returns a resource in the form from which rules are loaded. Its name is
// empty if it has none that can be shown.
func readResource(content *anypb.Any) (r limitsfile.Resource) {
	if content.GetTypeUrl() != TypeURL {
		r.Err = fmt.Errorf("the type %s; allowed: %s", yamlfile.Quote(content.GetTypeUrl()), TypeURL)
		return r
	}
	var config xdsv3.RateLimitConfig
	err := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(content.GetValue(), &config)
	if n := len(config.GetName()); n > 0 && n <= yamlfile.MaxName {
		r.Name = "resource " + yamlfile.Printable(config.GetName())
	}
	if err != nil {
		r.Err = fmt.Errorf("bytes that are no RateLimitConfig: %w", err)
		return r
	}
	r.Text, r.Err = textOf(&config)
	return r
}
