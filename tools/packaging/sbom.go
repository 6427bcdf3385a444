package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// modulesOf returns the modules that a binary was built from, as JSON of CycloneDX. The
// project's own have its version: in the binary they are those of a checkout.
func modulesOf(binary []byte, version string, own []string, when time.Time) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(binary)
	main := moduleComponent(info.Main.Path, version, "")
	main.Type = cyclonedx.ComponentTypeApplication
	main.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}
	for _, s := range info.Settings {
		if s.Key == "GOOS" || s.Key == "GOARCH" || s.Key == "CGO_ENABLED" {
			main.Properties = appendTo(main.Properties, cyclonedx.Property{Name: "go:" + s.Key, Value: s.Value})
		}
	}
	components := []cyclonedx.Component{moduleComponent("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		if slices.Contains(own, d.Path) {
			d.Version, d.Sum = version, ""
		}
		components = append(components, moduleComponent(d.Path, d.Version, d.Sum))
	}
	slices.SortFunc(components, func(a, b cyclonedx.Component) int { return strings.Compare(a.PackageURL, b.PackageURL) })
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}

	bom := cyclonedx.NewBOM()
	bom.SerialNumber = "" // a random one would make each build another
	bom.Metadata = &cyclonedx.Metadata{Timestamp: when.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	var out bytes.Buffer
	encoder := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false)
	if err := encoder.EncodeVersion(bom, cyclonedx.SpecVersion1_6); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// moduleComponent returns a Go module. sum is its line of go.sum, or empty.
func moduleComponent(path, version, sum string) cyclonedx.Component {
	url := fmt.Sprintf("pkg:golang/%s@%s", path, strings.ReplaceAll(version, "+", "%2B"))
	c := cyclonedx.Component{BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
	if text, ok := strings.CutPrefix(sum, "h1:"); ok {
		if digest, err := base64.StdEncoding.DecodeString(text); err == nil {
			c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(digest)}}
		}
	}
	return c
}

func appendTo[T any](list *[]T, item T) *[]T {
	if list == nil {
		return &[]T{item}
	}
	all := append(*list, item)
	return &all
}
