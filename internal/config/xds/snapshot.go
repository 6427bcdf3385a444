package xds

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/proto/wire"
)

// TypeURL is the type of the requested resources.
const TypeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// Bounds of a response besides its size in bytes. An empty message takes many times its
// bytes in memory, so bytes alone bound too little.
const (
	// maxResources is the number of domains. They also count in maxParts.
	maxResources = 100_000
	// maxParts is the number of domains, descriptors, names in replaces and values in
	// metadata, all together. Together with maxTexts it makes the worst configuration,
	// and the one that stays in force while it is loaded, fit into half a gigabyte, which
	// is what Envoy Gateway requests for a pod.
	maxParts = 150_000
	// maxTexts is the number of bytes of names, keys and values, in all domains. The
	// rules in force, the next ones and the response all hold them.
	maxTexts = 24 << 20
	// maxMetadata is the number of bytes of metadata, in all domains.
	maxMetadata = 8 << 20
	// maxDepth is a little more than descriptors or metadata may nest.
	maxDepth = 300
	// maxLabel is the length of a version or a nonce in bytes. Both are sent back.
	maxLabel = 4096
)

// snapshot is a response: the whole configuration.
type snapshot struct {
	version, nonce string
	// typeURL is the type that the response gives for all its resources. It may be empty.
	typeURL string
	// resources are sorted, so that equal configurations give equal errors: a server
	// sends them in random order.
	resources []resource
	// digest tells configurations apart.
	digest [sha256.Size]byte
	// err says why the resources are not even looked at, or is nil.
	err error
}

// resource is one resource of a snapshot, as received.
type resource struct {
	typeURL, name string
	content       []byte
	// err says why the envelope is invalid, or is nil.
	err error
}

// readSnapshot reads a DiscoveryResponse (envoy/service/discovery/v3). The snapshot
// refers to data. An error means that there is no nonce to answer to.
func readSnapshot(data []byte) (*snapshot, error) {
	s := &snapshot{}
	f := wire.Fields[[]byte]{Rest: data}
	for f.Next() {
		switch {
		case f.Is(1, wire.Bytes):
			s.version = string(f.Bytes)
		case f.Is(2, wire.Bytes):
			if len(s.resources) == maxResources {
				s.err = fmt.Errorf("more than %d resources; allowed: fewer", maxResources)
				continue
			}
			runtime.Gosched() // requests go first, as while the resources are loaded
			s.resources = append(s.resources, readResource(f.Bytes))
		case f.Is(4, wire.Bytes):
			s.typeURL = typeText(f.Bytes)
		case f.Is(5, wire.Bytes):
			s.nonce = string(f.Bytes)
		}
	}
	if f.Err != nil {
		return nil, f.Err
	}
	for _, label := range []struct{ what, text string }{{"version", s.version}, {"nonce", s.nonce}} {
		if len(label.text) > maxLabel || !utf8.ValidString(label.text) {
			return nil, fmt.Errorf("the %s of a response is no UTF-8 of at most %d bytes", label.what, maxLabel)
		}
	}
	if s.err == nil {
		s.err = checkSize(s.resources)
	}
	s.sort()
	return s, nil
}

// checkEnvelope returns why the response is not the requested configuration, or nil.
// Resources carry their type themselves, and servers leave out the rest, so type_url and
// version_info are needed only where there is nothing else: an empty response removes all
// limits. A server whose snapshot lacks the type sends one without a version. The nonce
// may be missing; the answer then lacks it too.
func (s *snapshot) checkEnvelope() error {
	const allowed = "allowed: resources, or for a configuration without any the version_info and the type_url " + TypeURL
	switch {
	case !s.isOfType():
		return fmt.Errorf("the response: found the type_url %s; allowed: %s, which was asked for", yamlfile.Quote(s.typeURL), TypeURL)
	case len(s.resources) > 0:
		return nil
	case s.typeURL == "":
		return errors.New("the response: found neither resources nor a type_url; " + allowed)
	case s.version == "":
		return errors.New("the response: found neither resources nor a version_info; " + allowed)
	}
	return nil
}

// isOfType reports whether the response is of the requested type, or does not say.
func (s *snapshot) isOfType() bool { return s.typeURL == "" || s.typeURL == TypeURL }

// readResource reads a google.protobuf.Any, and the name in the RateLimitConfig.
func readResource(data []byte) resource {
	var r resource
	envelope := wire.Fields[[]byte]{Rest: data}
	for envelope.Next() {
		switch {
		case envelope.Is(1, wire.Bytes):
			r.typeURL = typeText(envelope.Bytes)
		case envelope.Is(2, wire.Bytes):
			r.content = envelope.Bytes
		}
	}
	r.err = envelope.Err
	if r.typeURL != TypeURL {
		return r
	}
	f := wire.Fields[[]byte]{Rest: r.content}
	for f.Next() {
		if f.Is(1, wire.Bytes) {
			r.name = string(f.Bytes[:min(len(f.Bytes), maxShown)])
		}
	}
	return r
}

// typeText returns a type as a string. The expected type is not copied, and of others no
// more than an error shows.
func typeText(data []byte) string {
	if string(data) == TypeURL {
		return TypeURL
	}
	return string(data[:min(len(data), maxShown)])
}

// maxShown is more bytes of a name or a type than are allowed or shown. A response can
// hold megabytes of them.
const maxShown = 512

func (s *snapshot) sort() {
	slices.SortFunc(s.resources, func(a, b resource) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.typeURL, b.typeURL), bytes.Compare(a.content, b.content))
	})
	h := sha256.New()
	add := func(data []byte) {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(data))))
		h.Write(data)
	}
	// What was read of a bad resource may be part of a good one.
	fail := func(err error) {
		if err != nil {
			add([]byte(err.Error()))
		}
	}
	fail(s.err)
	for _, r := range s.resources {
		add([]byte(r.typeURL))
		add(r.content)
		fail(r.err)
	}
	s.digest = [sha256.Size]byte(h.Sum(nil))
}

// list returns the resources in the form from which rules are loaded.
func (s *snapshot) list() []limitsfile.Resource {
	if s.err != nil {
		return []limitsfile.Resource{{Name: "the snapshot", Tree: failing(s.err)}}
	}
	list := make([]limitsfile.Resource, len(s.resources))
	for i := range s.resources {
		r := &s.resources[i]
		list[i].Name = "resource " + yamlfile.Printable(r.name)
		if r.name == "" || len(r.name) > yamlfile.MaxName {
			list[i].Name = fmt.Sprintf("resource %d of %d", i+1, len(s.resources))
		}
		switch {
		case r.err != nil:
			list[i].Tree = failing(fmt.Errorf("a resource that cannot be read: %w", r.err))
		case r.typeURL != TypeURL:
			list[i].Tree = failing(fmt.Errorf("the type %s; allowed: %s", yamlfile.Quote(r.typeURL), TypeURL))
		default:
			list[i].Tree = r.tree
		}
	}
	return list
}

var (
	errTooMany   = fmt.Errorf("more than %d resources, descriptors, names in replaces and values in metadata, all together; allowed: fewer", maxParts)
	errTexts     = fmt.Errorf("more than %d bytes of names, keys and values in all resources; allowed: fewer", maxTexts)
	errMetadata  = fmt.Errorf("more than %d bytes of metadata in all resources; allowed: fewer", maxMetadata)
	errTooNested = errors.New("descriptors or metadata that nest too deep; allowed: at most 256 levels of descriptors, and 32 of metadata")
)

// checkSize counts what the resources would take in memory before they do. What cannot be
// read is reported later, with its name.
func checkSize(resources []resource) error {
	c := counter{}
	for i := range resources {
		r := &resources[i]
		c.parts++
		f := wire.Fields[[]byte]{Rest: r.content}
		for r.typeURL == TypeURL && f.Next() {
			switch {
			case f.Is(1, wire.Bytes), f.Is(2, wire.Bytes):
				c.texts += len(f.Bytes)
			case f.Is(3, wire.Bytes):
				c.descriptor(f.Bytes, 1)
			}
		}
		switch {
		case c.parts > maxParts:
			return errTooMany
		case c.texts > maxTexts:
			return errTexts
		case c.metadata > maxMetadata:
			return errMetadata
		case c.tooDeep:
			return errTooNested
		}
	}
	return nil
}

// counter counts the parts (maxParts), and the bytes of texts and of metadata.
type counter struct {
	parts, texts, metadata int
	tooDeep                bool
}

func (c *counter) descriptor(data []byte, depth int) {
	c.parts++
	f := wire.Fields[[]byte]{Rest: data}
	for c.goesOn(depth) && f.Next() {
		switch {
		case f.Is(1, wire.Bytes), f.Is(2, wire.Bytes):
			c.texts += len(f.Bytes)
		case f.Is(3, wire.Bytes):
			c.policy(f.Bytes)
		case f.Is(4, wire.Bytes):
			c.descriptor(f.Bytes, depth+1)
		case f.Is(8, wire.Bytes):
			c.metadata += len(f.Bytes)
			c.structure(f.Bytes, 1)
		}
	}
}

func (c *counter) policy(data []byte) {
	f := wire.Fields[[]byte]{Rest: data}
	for f.Next() {
		switch {
		case f.Is(3, wire.Bytes):
			c.texts += len(f.Bytes)
		case f.Is(5, wire.Bytes):
			c.parts++
			c.texts += len(f.Bytes)
		}
	}
}

// structure counts the values of a google.protobuf.Struct: there may be one for every two
// bytes.
func (c *counter) structure(data []byte, depth int) {
	f := wire.Fields[[]byte]{Rest: data}
	for c.goesOn(depth) && f.Next() {
		if !f.Is(1, wire.Bytes) {
			continue
		}
		c.parts++
		entry := wire.Fields[[]byte]{Rest: f.Bytes}
		for c.goesOn(depth) && entry.Next() {
			if entry.Is(2, wire.Bytes) {
				c.value(entry.Bytes, depth)
			}
		}
	}
}

func (c *counter) value(data []byte, depth int) {
	f := wire.Fields[[]byte]{Rest: data}
	for c.goesOn(depth) && f.Next() {
		switch {
		case f.Is(5, wire.Bytes):
			c.structure(f.Bytes, depth+1)
		case f.Is(6, wire.Bytes):
			list := wire.Fields[[]byte]{Rest: f.Bytes}
			for c.goesOn(depth) && list.Next() {
				if list.Is(1, wire.Bytes) {
					c.parts++
					c.value(list.Bytes, depth+1)
				}
			}
		}
	}
}

// goesOn reports whether counting continues at a depth.
func (c *counter) goesOn(depth int) bool {
	c.tooDeep = c.tooDeep || depth > maxDepth
	return !c.tooDeep && c.parts <= maxParts
}
