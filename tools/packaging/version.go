package main

import (
	"fmt"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// parseVersion returns a version that all modules of the project can have.
func parseVersion(text string) (string, error) {
	const allowed = `allowed: VERSION=vMAJOR.MINOR.PATCH, such as v1.2.3, or v1.2.3-rc.1 before it`
	switch {
	case !semver.IsValid(text) || semver.Canonical(text) != text || module.IsPseudoVersion(text):
		return "", fmt.Errorf("found the version %q; %s", text, allowed)
	case module.CheckPathMajor(text, "") != nil:
		// Go would not find it: a module has its major version from 2 on in its path.
		return "", fmt.Errorf("found the version %q, whose modules need paths that end in /%s; allowed with those that they have: v0 and v1", text, semver.Major(text))
	}
	return text, nil
}
