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

// snapshot is a response: the whole configuration.
type snapshot struct {
	version string
	// resources are sorted, so that equal configurations give equal errors: a server
	// sends them in random order.
	resources []*resource
	// digest tells configurations apart.
	digest [sha256.Size]byte
}

// resource is one resource of a snapshot.
type resource struct {
	*anypb.Any
	config xdsv3.RateLimitConfig
	// err says why it is no RateLimitConfig, or is nil.
	err error
}

// readSnapshot reads a response. An error says why it is not the requested configuration.
//
// Resources carry their type themselves, and servers leave out the rest, so type_url and
// version_info are needed only where there is nothing else: an empty response removes all
// limits. A server whose snapshot lacks the type sends one without a version. The nonce
// may be missing; the answer then lacks it too.
func readSnapshot(r *discoveryv3.DiscoveryResponse) (*snapshot, error) {
	const allowed = "allowed: resources, or for a configuration without any the version_info and the type_url " + TypeURL
	switch {
	case !isOfType(r):
		return nil, fmt.Errorf("the response: found the type_url %s; allowed: %s, which was asked for", yamlfile.Quote(r.GetTypeUrl()), TypeURL)
	case len(r.GetResources()) > 0:
	case r.GetTypeUrl() == "":
		return nil, errors.New("the response: found neither resources nor a type_url; " + allowed)
	case r.GetVersionInfo() == "":
		return nil, errors.New("the response: found neither resources nor a version_info; " + allowed)
	}
	s := &snapshot{version: r.GetVersionInfo()}
	for _, content := range r.GetResources() {
		reload.Yield()
		s.resources = append(s.resources, readResource(content))
	}
	slices.SortFunc(s.resources, func(a, b *resource) int {
		return cmp.Or(strings.Compare(a.config.GetName(), b.config.GetName()), strings.Compare(a.GetTypeUrl(), b.GetTypeUrl()), bytes.Compare(a.GetValue(), b.GetValue()))
	})
	h := sha256.New()
	for _, r := range s.resources {
		fmt.Fprintf(h, "%q %d\n%s", r.GetTypeUrl(), len(r.GetValue()), r.GetValue())
	}
	s.digest = [sha256.Size]byte(h.Sum(nil))
	return s, nil
}

// isOfType reports whether a response is of the requested type, or does not say.
func isOfType(r *discoveryv3.DiscoveryResponse) bool {
	return r.GetTypeUrl() == "" || r.GetTypeUrl() == TypeURL
}

func readResource(content *anypb.Any) *resource {
	r := &resource{Any: content}
	if content.GetTypeUrl() != TypeURL {
		r.err = fmt.Errorf("the type %s; allowed: %s", yamlfile.Quote(content.GetTypeUrl()), TypeURL)
	} else if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(content.GetValue(), &r.config); err != nil {
		r.err = fmt.Errorf("bytes that are no RateLimitConfig: %w", err)
	}
	return r
}

// list returns the resources in the form from which rules are loaded.
func (s *snapshot) list() []limitsfile.Resource {
	list := make([]limitsfile.Resource, len(s.resources))
	for i, r := range s.resources {
		list[i].Name = "resource " + yamlfile.Printable(r.config.GetName())
		if n := len(r.config.GetName()); n == 0 || n > yamlfile.MaxName {
			list[i].Name = fmt.Sprintf("resource %d of %d", i+1, len(s.resources))
		}
		list[i].Text = func() ([]byte, error) {
			if r.err != nil {
				return nil, r.err
			}
			return textOf(&r.config)
		}
	}
	return list
}
