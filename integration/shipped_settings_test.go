package integration

import (
	"net"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
)

// projectRoot is the project's folder, as seen from this package.
const projectRoot = ".."

// settingsOf loads settings from an environment and checks that every name is
// known.
func settingsOf(t *testing.T, environ []string) settings.Settings {
	t.Helper()
	s, warnings, err := settings.Load(nil, environ, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range warnings {
		t.Error(w)
	}
	return s
}

func portOf(t testing.TB, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func checkEverywhereWithoutPprof(t *testing.T, s settings.Settings) {
	t.Helper()
	host, _, err := net.SplitHostPort(s.Admin.Address)
	if err != nil || host != "" {
		t.Errorf("the admin port listens at %s, want all addresses", s.Admin.Address)
	}
	if s.Admin.Pprof {
		t.Error("profiles are served, and not only on loopback")
	}
}
